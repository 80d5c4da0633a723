//! Names of points in a chart: the properties that tell a point apart. Properties that all points share stand in the
//! chart's title.

use super::Group;
use crate::matrix::{ClusterSpec, Spec};

/// One name for each; the cluster's stays where nothing else would.
pub fn distinct(points: &[(ClusterSpec, Spec)]) -> Vec<String> {
    let several = points.iter().any(|(_, spec)| spec.clients > 1);
    let parts: Vec<Vec<String>> = points
        .iter()
        .map(|(cluster, spec)| {
            let of_spec = spec.label();
            let of_spec = of_spec.split(" · ").map(str::to_owned);
            // Said only where others have more: alone it would be said of everything.
            let one = (spec.clients == 1 && several).then(|| "1 client".to_owned());
            std::iter::once(cluster.label()).chain(of_spec).chain(one).collect()
        })
        .collect();
    let shared: Vec<String> = match parts.split_first() {
        Some((first, rest)) => {
            first.iter().filter(|part| rest.iter().all(|other| other.contains(part))).cloned().collect()
        }
        None => Vec::new(),
    };
    let name = |own: &Vec<String>| {
        let left: Vec<&str> = own.iter().filter(|p| !shared.contains(p)).map(String::as_str).collect();
        if left.is_empty() { own[0].clone() } else { left.join(" · ") }
    };
    parts.iter().map(name).collect()
}

/// The same, of groups as they are.
pub fn of(groups: &[&Group]) -> Vec<String> {
    distinct(&groups.iter().map(|g| (g.cluster.clone(), g.spec.clone())).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_only_the_differing_keys() {
        let with = |depth: u32, mode: &str| {
            (ClusterSpec::existing(), Spec { depth, mode: mode.into(), ..Spec::default() })
        };
        assert_eq!(distinct(&[with(1, "crc"), with(16, "crc")]), ["depth 1", "depth 16"]);
        assert_eq!(distinct(&[with(1, "crc"), with(1, "secure")]), ["crc", "secure"]);
        assert_eq!(distinct(&[with(1, "crc")]), ["the cluster"]);
        let clients = |clients: u32| (ClusterSpec::existing(), Spec { clients, ..Spec::default() });
        assert_eq!(distinct(&[clients(1), clients(4)]), ["1 client", "4 clients"]);
        assert_eq!(distinct(&[]), Vec::<String>::new());
    }
}
