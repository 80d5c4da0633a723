//! Tunables by the name of the release that brought them.

use wire::types::crush::Tunables;

/// The tunables of a profile (`osd crush tunables PROFILE`). Straw lengths keep their version, except in `legacy`,
/// `optimal` and `default`, which name one.
pub fn profile(name: &str, now: &Tunables) -> Option<Tunables> {
    let straw_calc_version = now.straw_calc_version;
    let released = match name {
        "argonaut" => Tunables::ARGONAUT,
        "bobtail" => Tunables::BOBTAIL,
        "firefly" => Tunables::FIREFLY,
        "hammer" => Tunables::HAMMER,
        "jewel" => Tunables::JEWEL,
        "legacy" => return Some(Tunables::ARGONAUT),
        "optimal" | "default" => return Some(Tunables::DEFAULT),
        _ => return None,
    };
    Some(Tunables { straw_calc_version, ..released })
}

/// The profile that tunables equal, or `"unknown"`. Neither the straw version nor the MSR tunables count.
pub fn profile_name(t: &Tunables) -> &'static str {
    let same = |released: Tunables| {
        Tunables {
            straw_calc_version: t.straw_calc_version,
            msr_descents: t.msr_descents,
            msr_collision_tries: t.msr_collision_tries,
            ..released
        } == *t
    };
    let newest_first = [
        ("jewel", Tunables::JEWEL),
        ("hammer", Tunables::HAMMER),
        ("firefly", Tunables::FIREFLY),
        ("bobtail", Tunables::BOBTAIL),
        ("argonaut", Tunables::ARGONAUT),
    ];
    newest_first.into_iter().find(|(_, released)| same(*released)).map_or("unknown", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_recognised() {
        for name in ["argonaut", "bobtail", "firefly", "hammer", "jewel"] {
            assert_eq!(profile_name(&profile(name, &Tunables::DEFAULT).unwrap()), name);
        }
        assert_eq!(profile_name(&Tunables::DEFAULT), "jewel");
        assert_eq!(profile_name(&Tunables { choose_total_tries: 7, ..Tunables::DEFAULT }), "unknown");
        assert_eq!(profile("dumpling", &Tunables::DEFAULT), None);
    }
}
