//! Commands as the `ceph` tool sends them: who may, what changes, what is printed.

use super::{AuthMode, Fixture, Input, Monitor, parse};
use command::errno::{EACCES, EEXIST, EINVAL, ENOENT, EPERM};
use machine::Random;
use wire::cephx::{Key, KeyKind};
use wire::types::{AuthName, UTime};

fn fixture() -> (Fixture, machine::ConnId) {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    (f, admin)
}

#[test]
fn what_is_not_known_is_refused_as_stock_does() {
    let (mut f, admin) = fixture();
    let answer = |f: &mut Fixture, json: &str| {
        let (errno, status, _) = f.command(admin, json);
        (errno, status)
    };
    assert_eq!(answer(&mut f, r#"{"prefix":"nonsense"}"#), (EINVAL, "command not known".into()));
    assert_eq!(answer(&mut f, "{}"), (EINVAL, "command prefix not found".into()));
    assert_eq!(answer(&mut f, "x"), (EINVAL, "unparseable JSON x".into()));
    assert_eq!(answer(&mut f, ""), (EINVAL, "no command specified".into()));
}

#[test]
fn permissions_are_by_command() {
    let (mut f, _) = fixture();
    let poor = f.connect("client.poor", 5001);
    f.ok(poor, r#"{"prefix":"status"}"#);
    for json in [
        r#"{"prefix":"osd set","key":"noout"}"#,
        r#"{"prefix":"auth ls"}"#,
        r#"{"prefix":"config-key get","key":"x"}"#,
    ] {
        let (errno, status, _) = f.command(poor, json);
        assert_eq!((errno, status.as_str()), (EACCES, "access denied"), "{json}");
    }
    // A new capability holds at once, for sessions that are there.
    let admin = f.connect("client.admin", 5000);
    f.ok(admin, r#"{"prefix":"auth caps","entity":"client.poor","caps":["mon","allow rw"]}"#);
    f.ok(poor, r#"{"prefix":"osd set","key":"noout"}"#);
}

#[test]
fn every_description_parses_and_names_its_command() {
    let (mut f, admin) = fixture();
    let all = parse(&f.ok(admin, r#"{"prefix":"get_command_descriptions"}"#));
    let all = all.as_object().unwrap();
    assert!(all.len() > 150, "{}", all.len());
    for description in all.values() {
        assert!(description["sig"][0].is_string() && description["perm"].is_string());
    }
}

#[test]
fn status_is_whole_in_each_format() {
    let (mut f, admin) = fixture();
    let plain = f.ok(admin, r#"{"prefix":"status"}"#);
    for part in [
        "  cluster:\n    id:     5a5a5a5a",
        "  services:\n    mon: 1 daemons, quorum a",
        "  data:\n    pools:   0 pools, 0 pgs",
    ] {
        assert!(plain.contains(part), "{plain}");
    }
    let json = parse(&f.ok(admin, r#"{"prefix":"status","format":"json"}"#));
    let keys: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        keys,
        [
            "fsid",
            "health",
            "election_epoch",
            "quorum",
            "quorum_names",
            "quorum_age",
            "monmap",
            "osdmap",
            "pgmap",
            "fsmap",
            "mgrmap",
            "servicemap",
            "progress_events"
        ]
    );
}

/// Whoever waits for clean PGs must not take those that nobody has reported for none.
#[test]
fn pgs_without_a_report_are_unknown() {
    let (mut f, admin) = fixture();
    f.ok(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let json = parse(&f.ok(admin, r#"{"prefix":"status","format":"json"}"#));
    let pgmap = &json["pgmap"];
    assert_eq!((&pgmap["num_pools"], &pgmap["num_pgs"]), (&1.into(), &8.into()));
    assert_eq!(pgmap["pgs_by_state"], serde_json::json!([{"state_name": "unknown", "count": 8}]));
    let plain = f.ok(admin, r#"{"prefix":"status"}"#);
    assert!(plain.contains("pools:   1 pools, 8 pgs") && plain.contains("100.000% pgs unknown"), "{plain}");
}

#[test]
fn a_pool_is_made_shown_renamed_and_removed() {
    let (mut f, admin) = fixture();
    let made = f.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    assert_eq!(made, (0, "pool 'p' created".into(), String::new()));
    let again = f.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    assert_eq!(again, (0, "pool 'p' already exists".into(), String::new()));
    assert_eq!(f.ok(admin, r#"{"prefix":"osd lspools"}"#), "1 p\n");
    assert_eq!(f.ok(admin, r#"{"prefix":"osd pool get","pool":"p","var":"size"}"#), "size: 3\n");
    let (errno, ..) = f.command(admin, r#"{"prefix":"osd pool get","pool":"q","var":"size"}"#);
    assert_eq!(errno, ENOENT);
    let renamed = f.command(admin, r#"{"prefix":"osd pool rename","srcpool":"p","destpool":"q"}"#);
    assert_eq!(renamed.1, "pool 'p' renamed to 'q'");
    let (errno, text, _) = f.command(admin, r#"{"prefix":"osd pool rm","pool":"q"}"#);
    assert_eq!(errno, EPERM);
    assert!(text.starts_with("WARNING: this will *PERMANENTLY DESTROY* all data stored in pool q."));
    let rm = r#"{"prefix":"osd pool rm","pool":"q","pool2":"q","yes_i_really_really_mean_it":true}"#;
    assert_eq!(f.command(admin, rm).1, "pool 'q' removed");
    assert_eq!(f.ok(admin, r#"{"prefix":"osd pool ls"}"#), "");
    assert!(f.monitor.state().osd.creating.is_empty());
}

#[test]
fn keys_are_made_shown_changed_and_removed() {
    let (mut f, admin) = fixture();
    let make = r#"{"prefix":"auth get-or-create","entity":"client.x","caps":["mon","allow r"]}"#;
    let first = f.ok(admin, make);
    assert!(first.starts_with("[client.x]\n\tkey = "), "{first}");
    assert_eq!(f.ok(admin, make), first);
    let other = r#"{"prefix":"auth get-or-create","entity":"client.x","caps":["mon","allow rw"]}"#;
    let (errno, text, _) = f.command(admin, other);
    assert_eq!((errno, text.as_str()), (EINVAL, "key for client.x exists but cap mon does not match"));
    let bad = r#"{"prefix":"auth caps","entity":"client.x","caps":["mon","bogus"]}"#;
    let (errno, text, _) = f.command(admin, bad);
    assert_eq!(
        (errno, text.as_str()),
        (EINVAL, "mon capability parse failed, stopped at 'bogus' of 'bogus'")
    );
    let key = f.ok(admin, r#"{"prefix":"auth get-key","entity":"client.x"}"#);
    assert!(first.contains(&key));
    let exported = f.ok(admin, r#"{"prefix":"auth export","entity":"client.x"}"#);
    f.ok(admin, r#"{"prefix":"auth rm","entity":"client.x"}"#);
    let (errno, text, _) = f.command(admin, r#"{"prefix":"auth get","entity":"client.x"}"#);
    assert_eq!((errno, text.as_str()), (ENOENT, "failed to find client.x in keyring"));
    let imported = f.command_with(admin, r#"{"prefix":"auth import"}"#, exported.as_bytes());
    assert_eq!(imported.0, 0);
    assert_eq!(f.ok(admin, r#"{"prefix":"auth get-key","entity":"client.x"}"#), key);
}

#[test]
fn blocklist_takes_networks_and_lets_them_in_again() {
    let (mut f, admin) = fixture();
    let command = |operation: &str, addr: &str| {
        format!(r#"{{"prefix":"osd blocklist","range":"range","blocklistop":"{operation}","addr":"{addr}"}}"#)
    };
    for (addr, said) in [
        ("10.9.8.0/33", "Too many bits in range for that protocol!"),
        ("10.9.8.0", "You specified a range command, but v2:10.9.8.0:0/0 does not parse as a CIDR range"),
        ("10.9.8/24", "unable to parse address 10.9.8/24"),
    ] {
        let (errno, text, _) = f.command(admin, &command("add", addr));
        assert_eq!((errno, text.as_str()), (EINVAL, said));
    }
    for addr in ["10.9.8.0/24", "[fd00::]/8"] {
        assert_eq!(f.command(admin, &command("add", addr)).0, 0, "{addr}");
    }
    assert_eq!(f.monitor.state().osdmap().range_blocklist.len(), 2);
    assert!(f.monitor.state().osdmap().blocklist.is_empty());
    let listed = f.ok(admin, r#"{"prefix":"osd blocklist ls"}"#);
    assert!(listed.contains("cidr:10.9.8.0:0/24 "), "{listed}");
    for said in ["un-blocklisting cidr:10.9.8.0:0/24", "cidr:10.9.8.0:0/24 isn't blocklisted"] {
        let (errno, text, _) = f.command(admin, &command("rm", "10.9.8.0/24"));
        assert_eq!((errno, text.as_str()), (0, said));
    }
    f.ok(admin, r#"{"prefix":"osd blocklist clear"}"#);
    assert!(f.monitor.state().osdmap().range_blocklist.is_empty());
}

#[test]
fn configuration_is_set_shown_and_cleared() {
    let (mut f, admin) = fixture();
    f.ok(admin, r#"{"prefix":"config set","who":"osd","name":"debug osd","value":"1"}"#);
    let shown = f.ok(admin, r#"{"prefix":"config get","who":"osd.0"}"#);
    assert_eq!(
        shown,
        "WHO  MASK  LEVEL     OPTION     VALUE  RO\nosd        advanced  debug_osd  1/1      \n"
    );
    let json = f.ok(admin, r#"{"prefix":"config get","who":"osd.0","format":"json"}"#);
    assert_eq!(
        json,
        r#"{"debug_osd":{"value":"1/1","section":"osd","mask":{},"can_update_at_runtime":true}}"#
    );
    let one = f.ok(admin, r#"{"prefix":"config get","who":"osd.0","key":"osd_max_backfills"}"#);
    assert_eq!(one, "1\n");
    let unknown = r#"{"prefix":"config set","who":"osd","name":"nope_nope","value":"1"}"#;
    let (errno, text, _) = f.command(admin, unknown);
    assert_eq!((errno, text.as_str()), (EINVAL, "unrecognized config option 'nope_nope'"));
    f.ok(admin, r#"{"prefix":"config rm","who":"osd","name":"debug_osd"}"#);
    let log = f.ok(admin, r#"{"prefix":"config log"}"#);
    assert!(log.contains("- osd/debug_osd = 1/1") && log.contains("+ osd/debug_osd = 1/1"), "{log}");
    f.ok(admin, r#"{"prefix":"config reset","num":1}"#);
    assert_eq!(f.monitor.state().config.values.len(), 1);
}

#[test]
fn crush_is_edited_and_shown() {
    let (mut f, admin) = fixture();
    f.ok(admin, r#"{"prefix":"osd new","uuid":"11111111-2222-3333-4444-555555555555","id":0}"#);
    let added = f.command(admin, r#"{"prefix":"osd crush add-bucket","name":"h9","type":"host"}"#);
    assert_eq!(added.1, "added bucket h9 type host to crush map");
    f.ok(admin, r#"{"prefix":"osd crush move","name":"h9","args":["root=default"]}"#);
    let set = r#"{"prefix":"osd crush set","id":0,"weight":0.5,"args":["root=default","host=h9"]}"#;
    let text = f.command(admin, set).1;
    assert_eq!(text, "set item id 0 name 'osd.0' weight 0.5 at location {host=h9,root=default} to crush map");
    let tree = f.ok(admin, r#"{"prefix":"osd tree"}"#);
    let want = "ID  CLASS  WEIGHT   TYPE NAME      STATUS  REWEIGHT  PRI-AFF\n-1         0.50000  root default                            \n-2         0.50000      host h9                             \n 0         0.50000          osd.0    down         0  1.00000\n";
    assert_eq!(tree, want);
    let (errno, ..) = f.command(admin, r#"{"prefix":"osd crush rm","name":"h9"}"#);
    assert_eq!(errno, command::errno::ENOTEMPTY);
    let map = f.monitor.state().osdmap();
    assert_eq!(map.crush_version, 4);
}

#[test]
fn maps_written_as_bytes_read_back() {
    let (mut f, admin) = fixture();
    f.sent.clear();
    for (prefix, what) in
        [("osd getmap", "got osdmap epoch 1"), ("mon getmap", "got monmap epoch 1"), ("osd getcrushmap", "1")]
    {
        let (errno, status, _) = f.command(admin, &format!(r#"{{"prefix":"{prefix}"}}"#));
        assert_eq!((errno, status.as_str()), (0, what));
    }
}

#[test]
fn health_checks_are_muted_and_the_log_tells_of_them() {
    let (mut f, admin) = fixture();
    f.ok(admin, r#"{"prefix":"osd set","key":"noout"}"#);
    f.pass(std::time::Duration::from_secs(2));
    let log = f.ok(admin, r#"{"prefix":"log last","num":20}"#);
    assert!(log.contains("Health check failed: noout flag(s) set (OSDMAP_FLAGS)"), "{log}");
    f.ok(admin, r#"{"prefix":"health mute","code":"OSDMAP_FLAGS"}"#);
    let health = f.ok(admin, r#"{"prefix":"health","detail":"detail"}"#);
    assert!(
        health.contains("(muted: OSDMAP_FLAGS") && health.contains("(MUTED) [WRN] OSDMAP_FLAGS"),
        "{health}"
    );
    f.ok(admin, r#"{"prefix":"osd unset","key":"noout"}"#);
    f.pass(std::time::Duration::from_secs(2));
    assert!(f.monitor.state().mutes.is_empty());
}

#[test]
fn admin_commands_are_answered_by_id() {
    let (mut f, _) = fixture();
    for (id, command) in [(4, r#"{"prefix":"mon_status"}"#), (5, r#"{"prefix":"no such"}"#), (6, "{")] {
        f.step(Input::Admin { id, command: command.into() });
    }
    let answers: Vec<(u64, i32)> = f.answers.iter().map(|(id, answer)| (*id, answer.result)).collect();
    assert_eq!(answers, [(4, 0), (5, -EINVAL), (6, -EINVAL)]);
    assert_eq!(parse(&String::from_utf8_lossy(&f.answers[0].1.body))["name"], "a");
}

fn set(who: &str, name: &str, value: &str) -> String {
    format!(r#"{{"prefix":"config set","who":"{who}","name":"{name}","value":"{value}"}}"#)
}

fn admin_socket(f: &mut Fixture, json: &str) -> command::Answer {
    f.answers.clear();
    f.step(Input::Admin { id: 1, command: json.into() });
    f.answers.pop_front().expect("an admin command is answered").1
}

fn pg_num(f: &Fixture, pool: &str) -> u32 {
    let map = f.monitor.state().osdmap();
    map.pools[&map.pool_by_name(pool).unwrap()].pg_num
}

#[test]
fn monitor_acts_on_its_database_at_once() {
    let (mut f, admin) = fixture();
    let create = |f: &mut Fixture, pool: &str| {
        f.ok(admin, &format!(r#"{{"prefix":"osd pool create","pool":"{pool}","size":1}}"#));
        pg_num(f, pool)
    };
    assert_eq!(create(&mut f, "default"), 32);
    f.ok(admin, &set("global", "osd_pool_default_pg_num", "8"));
    assert_eq!(create(&mut f, "global"), 8);
    f.ok(admin, &set("mon.a", "osd_pool_default_pg_num", "4"));
    assert_eq!(create(&mut f, "own"), 4);
    let over = r#"{"prefix":"config set","var":"osd_pool_default_pg_num","val":["2"]}"#;
    assert_eq!(admin_socket(&mut f, over).result, 0);
    assert_eq!(create(&mut f, "override"), 2);
    admin_socket(&mut f, r#"{"prefix":"config unset","var":"osd_pool_default_pg_num"}"#);
    f.ok(admin, r#"{"prefix":"config rm","who":"mon.a","name":"osd_pool_default_pg_num"}"#);
    assert_eq!(create(&mut f, "again"), 8);
}

#[test]
fn file_option_of_a_monitor_outweighs_its_database() {
    let (mut f, admin) = fixture();
    f.ok(admin, r#"{"prefix":"osd pool create","pool":"p","size":1}"#);
    // The fixture's file allows it.
    f.ok(admin, &set("mon", "mon_allow_pool_delete", "false"));
    let remove = r#"{"prefix":"osd pool rm","pool":"p","pool2":"p","yes_i_really_really_mean_it":true}"#;
    f.ok(admin, remove);
    let shown =
        admin_socket(&mut f, r#"{"prefix":"config diff get","var":"mon_allow_pool_delete","format":"json"}"#);
    assert_eq!(
        shown.body,
        r#"{"diff":{"mon_allow_pool_delete":{"default":false,"mon":false,"file":true,"final":true}}}"#
    );
}

#[test]
fn config_set_warns_of_what_does_not_act() {
    let (mut f, admin) = fixture();
    let mut status = |json: String| {
        let (errno, status, _) = f.command(admin, &json);
        assert_eq!(errno, 0, "{status}");
        status
    };
    assert_eq!(status(set("osd", "osd_heartbeat_grace", "30")), "");
    let stored = status(set("osd", "osd_recovery_max_active_hdd", "3"));
    assert_eq!(stored, "osd_recovery_max_active_hdd is stored, but shoal does not act on it");
    assert_eq!(status(set("osd.0", "shoal_cores", "4")), "shoal_cores takes effect when osd restarts");
    let (errno, text, _) = f.command(admin, &set("osd", "debug_osd", "100"));
    assert_eq!(
        (errno, text.as_str()),
        (command::errno::ERANGE, "error parsing value: value must be in range [0, 99]")
    );
}

#[test]
fn options_on_disk_are_known_before_the_start() {
    let (mut f, admin) = fixture();
    f.ok(admin, &set("mon", "metrics_addr", "127.0.0.1:9283"));
    f.ok(admin, &set("osd", "shoal_cores", "2"));
    f.ok(admin, &set("mgr", "ms_service_mode", "secure"));
    let names = ["mon.a", "mgr.a"].map(|name| name.parse().unwrap());
    let stored = Monitor::stored_options(&f.disk, names.each_ref(), "h").unwrap();
    let one = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
    assert_eq!(stored, [one("metrics_addr", "127.0.0.1:9283"), one("ms_service_mode", "secure")]);
}

#[test]
fn reweightn_sets_all_weights_or_none() {
    let (mut f, admin) = fixture();
    for (digit, id) in [("1", 0), ("2", 1)] {
        let uuid = "11111111-2222-3333-4444-555555555555".replace('1', digit);
        f.ok(admin, &format!(r#"{{"prefix":"osd new","uuid":"{uuid}","id":{id}}}"#));
    }
    let weights = |f: &Fixture| [0, 1].map(|osd| f.monitor.state().osdmap().weight(osd));
    f.ok(admin, r#"{"prefix":"osd reweightn","weights":"{'0': '60000','1':'32768'}"}"#);
    assert_eq!(weights(&f), [60_000, 32_768]);
    for (weights, errno) in
        [("{'0': '1', '9': '65536'}", ENOENT), ("nonsense", EINVAL), ("{'0':'x'}", EINVAL)]
    {
        let command = format!(r#"{{"prefix":"osd reweightn","weights":"{weights}"}}"#);
        let status = format!("unable to parse 'weights' value '{weights}'");
        assert_eq!(f.command(admin, &command).0, errno);
        assert_eq!(f.command(admin, &command).1, status);
    }
    assert_eq!(weights(&f), [60_000, 32_768]);
}

#[test]
fn destroying_an_osd_that_does_not_exist_is_no_error() {
    let (mut f, admin) = fixture();
    for prefix in ["osd destroy-actual", "osd purge-actual"] {
        let command = format!(r#"{{"prefix":"{prefix}","id":77,"yes_i_really_mean_it":true}}"#);
        let (errno, status, _) = f.command(admin, &command);
        assert_eq!((errno, status.as_str()), (0, "osd.77 does not exist"));
    }
}

#[test]
fn encrypted_osd_has_a_lockbox_until_it_is_destroyed() {
    let (mut f, admin) = fixture();
    let uuid = "11111111-2222-3333-4444-555555555555";
    let key =
        |n: u8| Key::generate(KeyKind::Aes, UTime::default(), &mut Random::from_number(n.into())).to_base64();
    let (own, lockbox) = (key(1), key(2));
    let new = |f: &mut Fixture, secrets: &str| {
        let command = format!(r#"{{"prefix":"osd new","uuid":"{uuid}","id":0}}"#);
        let (errno, status, _) = f.command_with(admin, &command, secrets.as_bytes());
        (errno, status)
    };
    // Texts of stock 16.2.
    for (secrets, text) in [
        (
            format!(r#"{{"dmcrypt_key":"abc","cephx_lockbox_secret":"{lockbox}"}}"#),
            "requires a cephx secret.",
        ),
        (
            format!(r#"{{"cephx_secret":"{own}","dmcrypt_key":"abc"}}"#),
            "requires both a cephx lockbox secret and a dm-crypt key.",
        ),
        (
            format!(r#"{{"cephx_secret":"{own}","dmcrypt_key":"abc","cephx_lockbox_secret":"xx"}}"#),
            "invalid cephx lockbox secret.",
        ),
    ] {
        assert_eq!(new(&mut f, &secrets), (EINVAL, text.to_owned()));
    }
    let secrets = |key: &str, lockbox: &str| {
        format!(r#"{{"cephx_secret":"{own}","dmcrypt_key":"{key}","cephx_lockbox_secret":"{lockbox}"}}"#)
    };
    assert_eq!(new(&mut f, &secrets("abc", &lockbox)).0, 0);
    assert_eq!(new(&mut f, &secrets("abc", &lockbox)).0, 0, "a second time");
    assert_eq!(
        new(&mut f, &secrets("other", &lockbox)),
        (EEXIST, "dm-crypt key already exists and does not match".into())
    );
    let refused = new(&mut f, &secrets("abc", &key(3)));
    assert_eq!(refused, (EEXIST, format!("entity client.osd-lockbox.{uuid} exists but key does not match")));

    let entity: AuthName = format!("client.osd-lockbox.{uuid}").parse().unwrap();
    let path = format!("dm-crypt/osd/{uuid}/luks");
    assert_eq!(f.ok(admin, &format!(r#"{{"prefix":"config-key get","key":"{path}"}}"#)), "abc");
    let caps = &f.monitor.state().auth.entities[&entity].caps;
    assert_eq!(caps["mon"], format!("allow command \"config-key get\" with key=\"{path}\""));
    f.ok(admin, r#"{"prefix":"osd destroy-actual","id":0,"yes_i_really_mean_it":true}"#);
    assert!(!f.monitor.state().auth.entities.contains_key(&entity));
    assert!(!f.monitor.state().config_keys.contains_key(&path));
}
