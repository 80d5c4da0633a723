//! Copies of pools: size, min_size and the rule that places them. Texts and numbers are those of Ceph 20.2.4.

use super::cluster::Cluster;
use super::{AuthMode, Fixture};
use command::errno::{EINVAL, ENOENT, EOPNOTSUPP, EPERM};
use machine::ConnId;

fn fixture() -> (Fixture, ConnId) {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    (f, admin)
}

fn create(f: &mut Fixture, admin: ConnId, name: &str, size: u64) -> (i32, String) {
    f.says(admin, &format!(r#"{{"prefix":"osd pool create","pool":"{name}","pg_num":8,"size":{size}}}"#))
}

fn set(f: &mut Fixture, admin: ConnId, var: &str, val: &str) -> (i32, String) {
    f.says(admin, &format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}"}}"#))
}

fn set_option(f: &mut Fixture, admin: ConnId, name: &str, value: &str) {
    let json = format!(r#"{{"prefix":"config set","who":"mon","name":"{name}","value":"{value}"}}"#);
    f.ok(admin, &json);
}

/// Size and min_size of a pool.
fn copies(f: &Fixture, name: &str) -> (u8, u8) {
    let map = f.monitor.state().osdmap();
    let pool = &map.pools[&map.pool_by_name(name).unwrap()];
    (pool.size, pool.min_size)
}

#[test]
fn new_pool_takes_its_size_from_argument_or_option() {
    let (mut f, admin) = fixture();
    create(&mut f, admin, "default", 0);
    assert_eq!(copies(&f, "default"), (3, 2));
    for (size, min_size) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (10, 5)] {
        let name = format!("p{size}");
        assert_eq!(create(&mut f, admin, &name, size), (0, format!("pool '{name}' created")));
        assert_eq!(copies(&f, &name), (size as u8, min_size));
    }
    let refused = (EINVAL, "pool size must be between 1 and 10".to_owned());
    assert_eq!(create(&mut f, admin, "p11", 11), refused);
    set_option(&mut f, admin, "osd_pool_default_size", "5");
    set_option(&mut f, admin, "osd_pool_default_min_size", "4");
    create(&mut f, admin, "options", 0);
    assert_eq!(copies(&f, "options"), (5, 4));
    create(&mut f, admin, "small", 2);
    assert_eq!(copies(&f, "small"), (2, 2), "min_size is at most size");
    let erasure = r#"{"prefix":"osd pool create","pool":"e","pool_type":"erasure"}"#;
    // The simulator's trial of a backend makes such pools.
    if !cfg!(feature = "erasure-trial") {
        assert_eq!(f.says(admin, erasure).0, EOPNOTSUPP);
    }
}

#[test]
fn size_change_sets_min_size_to_its_default() {
    let (mut f, admin) = fixture();
    create(&mut f, admin, "p", 3);
    assert_eq!(set(&mut f, admin, "size", "4"), (0, "set pool 1 size to 4".into()));
    assert_eq!(set(&mut f, admin, "min_size", "4"), (0, "set pool 1 min_size to 4".into()));
    set(&mut f, admin, "size", "5");
    assert_eq!(copies(&f, "p"), (5, 3));
    set(&mut f, admin, "size", "2");
    assert_eq!(copies(&f, "p"), (2, 1));
}

#[test]
fn size_and_min_size_out_of_range_are_refused() {
    let (mut f, admin) = fixture();
    create(&mut f, admin, "p", 5);
    for (var, val, text) in [
        ("size", "0", "pool size must be between 1 and 10"),
        ("size", "11", "pool size must be between 1 and 10"),
        ("size", "x", "error parsing integer value 'x': Expected option value to be integer, got 'x'"),
        ("min_size", "0", "pool min_size must be between 1 and size, which is set to 5"),
        ("min_size", "6", "pool min_size must be between 1 and size, which is set to 5"),
    ] {
        assert_eq!(set(&mut f, admin, var, val), (EINVAL, text.into()), "{var} {val}");
    }
    set(&mut f, admin, "nosizechange", "true");
    for (var, what) in [("size", "size"), ("min_size", "min size")] {
        let text =
            format!("pool {what} change is disabled; you must unset nosizechange flag for the pool first");
        assert_eq!(set(&mut f, admin, var, "2"), (EPERM, text));
    }
    assert_eq!(copies(&f, "p"), (5, 3));
}

#[test]
fn size_one_needs_the_option_and_the_flag() {
    let (mut f, admin) = fixture();
    create(&mut f, admin, "p", 3);
    let sure = r#"{"prefix":"osd pool set","pool":"p","var":"size","val":"1","yes_i_really_mean_it":true}"#;
    let disabled = (EPERM, "configuring pool size as 1 is disabled by default.".to_owned());
    assert_eq!(set(&mut f, admin, "size", "1"), disabled);
    assert_eq!(f.says(admin, sure), disabled);
    set_option(&mut f, admin, "mon_allow_pool_size_one", "true");
    let warning = "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.";
    assert_eq!(set(&mut f, admin, "size", "1"), (EPERM, warning.into()));
    assert_eq!(copies(&f, "p"), (3, 2));
    assert_eq!(f.says(admin, sure), (0, "set pool 1 size to 1".into()));
    assert_eq!(copies(&f, "p"), (1, 1));
}

#[test]
fn rule_of_a_pool_follows_argument_option_and_type() {
    let (mut f, admin) = fixture();
    f.ok(
        admin,
        r#"{"prefix":"osd crush rule create-replicated","name":"byhost","root":"default","type":"host"}"#,
    );
    let rule = |f: &Fixture, name: &str| {
        let map = f.monitor.state().osdmap();
        map.pools[&map.pool_by_name(name).unwrap()].crush_rule
    };
    create(&mut f, admin, "p", 3);
    assert_eq!(rule(&f, "p"), 0);
    f.ok(admin, r#"{"prefix":"osd pool create","pool":"q","pg_num":8,"rule":"byhost"}"#);
    assert_eq!(rule(&f, "q"), 1);
    set_option(&mut f, admin, "osd_pool_default_crush_rule", "1");
    create(&mut f, admin, "r", 3);
    assert_eq!(rule(&f, "r"), 1);
    set_option(&mut f, admin, "osd_pool_default_crush_rule", "7");
    let none = "No suitable CRUSH rule exists, check 'osd pool default crush *' config options";
    assert_eq!(create(&mut f, admin, "s", 3), (ENOENT, none.into()));
    assert_eq!(set(&mut f, admin, "crush_rule", "byhost"), (0, "set pool 1 crush_rule to byhost".into()));
    let unknown = (ENOENT, "crush rule none does not exist".into());
    assert_eq!(set(&mut f, admin, "crush_rule", "none"), unknown);
}

#[test]
fn three_copies_fit_on_one_host_by_a_rule_over_osds() {
    let mut c = Cluster::of(&["h", "h", "h"]);
    c.done(r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    let up = |c: &Cluster| {
        let mut up = placement::map_pg(c.map(), wire::types::PgId { pool: 1, seed: 0 }).up;
        up.sort_unstable();
        up
    };
    assert_eq!(up(&c), [0, 1, 2]);
    c.done(r#"{"prefix":"osd crush rule create-replicated","name":"byhost","root":"default","type":"host"}"#);
    c.done(r#"{"prefix":"osd pool set","pool":"p","var":"crush_rule","val":"byhost"}"#);
    assert_eq!(up(&c).len(), 1);
}
