//! Capabilities on OSDs: which text is one, and what it allows. The facts are those of Ceph's own parser.

use super::{Access, ClassUse, Network, OsdAccess, OsdCap};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Applications = BTreeMap<String, BTreeMap<String, String>>;

fn cap(text: &str) -> OsdCap {
    OsdCap::parse(text).unwrap_or_else(|e| panic!("{e}"))
}

/// A request in short: `r`, `w` for plain operations; class calls beside it.
struct Ask {
    pool: &'static str,
    namespace: &'static str,
    applications: Applications,
    object: &'static str,
    plain: &'static str,
    classes: Vec<ClassUse<'static>>,
    peer: Option<&'static str>,
}

fn ask(plain: &'static str) -> Ask {
    Ask {
        pool: "foo",
        namespace: "",
        applications: BTreeMap::new(),
        object: "obj",
        plain,
        classes: Vec::new(),
        peer: Some("10.0.0.1"),
    }
}

/// A call of `class.method` that reads and writes as said, of a class that `x` is enough for.
fn call(class: &'static str, method: &'static str, access: &str) -> ClassUse<'static> {
    ClassUse {
        class,
        method,
        reads: access.contains('r'),
        writes: access.contains('w'),
        allowed_by_default: true,
    }
}

impl Ask {
    fn class(mut self, call: ClassUse<'static>) -> Ask {
        self.classes.push(call);
        self
    }

    fn tagged(mut self, application: &str, key: &str, value: &str) -> Ask {
        self.applications.entry(application.into()).or_default().insert(key.into(), value.into());
        self
    }

    fn of(&self, text: &str) -> bool {
        cap(text).allows(&OsdAccess {
            pool: self.pool,
            namespace: self.namespace.as_bytes(),
            applications: &self.applications,
            object: self.object.as_bytes(),
            reads: self.plain.contains('r'),
            writes: self.plain.contains('w'),
            classes: &self.classes,
            peer: self.peer.map(|p| p.parse().expect("an address")),
        })
    }
}

#[test]
fn capability_texts_parse() {
    for text in [
        "allow *",
        "allow all",
        "allow r",
        "allow rwx",
        "allow r pool foo ",
        "allow r pool=foo",
        "allow pool foo r",
        "allow wx pool taco object_prefix obj_with_underscores-and.dots/slashes",
        "allow pool taco object_prefix obj wx",
        "allow rwx pool 'weird name'",
        "allow rwx pool \"weird name with ''s\"",
        "allow rwx pool foo, allow r pool bar",
        "allow rwx pool foo ;allow r pool bar",
        "allow pool data rw, allow pool rbd rwx, allow pool images class rbd foo",
        "allow class-read",
        "allow class-write",
        "allow class-read class-write",
        "allow rw class-read class-write pool foo",
        "allow class foo",
        "allow class clsname \"quoted 'method'\"",
        "  allow   rwx   pool foo; allow r pool bar  ",
        "\tallow\nwx\tpool \n taco\t",
        "allow rwx\n",
        "allow pool foo namespace nfoo rwx, allow pool bar namespace=nbar r",
        "allow pool foo namespace=nfoo* rwx",
        "allow pool foo namespace=\"\" rwx; allow pool bar namespace '' object_prefix rbd r",
        "allow rwx namespace=nfoo tag cephfs data=cephfs_a",
        "allow rwx tag application key  =   value",
        "allow all tag application all=all",
        "profile abc, profile abc pool=bar, profile=abc pool=bar namespace=foo",
        "allow rwx network 127.0.0.1/8",
        "allow rwx network [ff::1]/128",
        "profile foo network 127.0.0.1/8",
        "allow pool foo rwx network 1.2.3.4/24",
    ] {
        assert!(OsdCap::parse(text).is_ok(), "{text:?}: {:?}", OsdCap::parse(text));
    }
}

#[test]
fn invalid_texts_report_where_parsing_stopped() {
    for (text, rest) in [
        ("", ""),
        ("ALLOW r", "ALLOW r"),
        ("allow", "allow"),
        ("\nallow r", "\nallow r"),
        ("allow r w", "w"),
        ("allow r poolfoo", "poolfoo"),
        ("allow rwx,", ","),
        ("allow rwx x", "x"),
        ("allow wwx pool taco", "wx pool taco"),
        ("allow r pool foo r", "r"),
        ("allow rwx pool 'weird name''", "'"),
        ("allow rwx object_prefix \"beforepool\" pool weird", "pool weird"),
        ("allow xrwx pool foo,, allow r pool bar", "rwx pool foo,, allow r pool bar"),
        (";allow rwx pool foo", ";allow rwx pool foo"),
        ("allow rwx pool foo ;allow r pool bar gibberish", "gibberish"),
        ("allow rwx namespace", "namespace"),
        ("allow namespace=foo", "allow namespace=foo"),
        ("allow namespace=f*oo", "allow namespace=f*oo"),
        ("allow rwx pool ''", "pool ''"),
        ("allow rwx tag application key value", "tag application key value"),
        ("allow rwx auid 123 pool asdf", "auid 123 pool asdf"),
        // The first alternative that fits is final.
        ("allow class foo pool bar", "bar"),
        ("allow r tag cephfs data=allstar", "star"),
        ("allow r; allow w auid 5", "auid 5"),
    ] {
        let error = OsdCap::parse(text).expect_err(text);
        assert_eq!(error.rest, rest, "{text:?}");
    }
    assert_eq!(
        OsdCap::parse("allow r w").unwrap_err().to_string(),
        "osd capability parse failed, stopped at 'w' of 'allow r w'"
    );
}

#[test]
fn letters_grant_their_permissions() {
    for (text, allowed) in [
        ("allow r", ["r"].as_slice()),
        ("allow w", &["w"]),
        ("allow rw", &["r", "w", "rw"]),
        ("allow x", &[]),
        ("allow *", &["r", "w", "rw"]),
        ("allow class-read", &[]),
        // Two grants do not add up.
        ("allow r, allow w", &["r", "w"]),
    ] {
        for plain in ["r", "w", "rw"] {
            assert_eq!(ask(plain).of(text), allowed.contains(&plain), "{plain} of {text:?}");
        }
    }
}

#[test]
fn class_calls_need_their_own_bits() {
    let asks = [("", "r"), ("", "w"), ("", "rw"), ("r", "r"), ("rw", "rw")];
    for (text, allowed) in [
        ("allow r", [false, false, false, false, false]),
        ("allow x", [true, true, true, false, false]),
        ("allow rx", [true, true, true, true, false]),
        ("allow rwx", [true, true, true, true, true]),
        ("allow class-read", [true, false, false, false, false]),
        ("allow class-write", [false, true, false, false, false]),
        ("allow r class-read", [true, false, false, true, false]),
        ("allow class-read class-write", [true, true, true, false, false]),
    ] {
        for ((plain, access), want) in asks.iter().zip(allowed) {
            let got = ask(plain).class(call("cls", "m", access)).of(text);
            assert_eq!(got, want, "{plain:?} and a class call that does {access:?}, of {text:?}");
        }
    }
}

#[test]
fn restricted_class_must_be_named() {
    let private = ClassUse { allowed_by_default: false, ..call("cls", "m", "rw") };
    for (text, allowed) in [
        ("allow rwx", false),
        ("allow *", true),
        ("allow class cls", true),
        ("allow class cls m", true),
        ("allow class cls other", false),
        ("allow class other", false),
        ("allow pool foo class cls", true),
        ("allow pool bar class cls", false),
    ] {
        assert_eq!(ask("").class(private).of(text), allowed, "{text:?}");
    }
    // A named class is no leave for plain operations.
    assert!(!ask("r").class(private).of("allow class cls"));
    // Nor do the two add up across grants.
    assert!(!ask("r").class(private).of("allow r, allow class cls"));
}

#[test]
fn several_classes_may_be_allowed_by_several_grants() {
    let both = || ask("").class(call("a", "m", "rw")).class(call("b", "m", "rw"));
    assert!(!both().of("allow class a"));
    assert!(both().of("allow class a, allow class b"));
    assert!(!both().of("allow class a, allow pool bar class b"));
}

#[test]
fn scopes_narrow_a_grant() {
    let here = |pool, namespace, object| Ask { pool, namespace, object, ..ask("rw") };
    let text = "allow rw pool foo";
    assert!(here("foo", "ns", "o").of(text) && !here("bar", "", "o").of(text));
    let text = "allow rw pool foo namespace ns object_prefix pre";
    assert!(here("foo", "ns", "prefix").of(text));
    assert!(!here("foo", "ns", "other").of(text) && !here("foo", "", "prefix").of(text));
    let text = "allow rw namespace=''";
    assert!(here("foo", "", "o").of(text) && !here("foo", "ns", "o").of(text));
    let text = "allow rw namespace=n*";
    assert!(
        here("foo", "ns", "o").of(text) && here("foo", "n", "o").of(text) && !here("foo", "", "o").of(text)
    );
    assert!(!here("foo", "n", "o").of("allow rw namespace='n?'"));
}

#[test]
fn tags_match_pool_applications() {
    let data = || ask("rw").tagged("cephfs", "data", "a");
    for (text, allowed) in [
        ("allow rw tag cephfs data=a", true),
        ("allow rw tag cephfs data=b", false),
        ("allow rw tag cephfs meta=a", false),
        ("allow rw tag rbd data=a", false),
        ("allow rw tag cephfs *=a", true),
        ("allow rw tag cephfs *=b", false),
        ("allow rw tag cephfs data=*", true),
        ("allow rw tag cephfs meta=*", false),
        ("allow rw tag cephfs *=*", true),
        ("allow rw namespace ns tag cephfs data=a", false),
    ] {
        assert_eq!(data().of(text), allowed, "{text:?}");
    }
    assert!(!ask("rw").of("allow rw tag cephfs *=*"));
}

#[test]
fn profiles_expand_to_rules() {
    let rbd = |method, access| call("rbd", method, access);
    let at = |pool, namespace, object, ask: Ask| Ask { pool, namespace, object, ..ask };
    let text = "profile rbd pool abc";
    assert!(!at("foo", "", "o", ask("rw")).of(text) && at("abc", "", "o", ask("rw")).of(text));
    assert!(at("foo", "", "rbd_children", ask("").class(rbd("any", "r"))).of(text));
    assert!(!at("foo", "", "rbd_children", ask("r")).of(text));
    assert!(at("foo", "", "rbd_info", ask("r")).of(text));

    let text = "profile rbd-read-only pool abc namespace ns";
    assert!(at("abc", "ns", "o", ask("r").class(rbd("any", "r"))).of(text));
    assert!(!at("abc", "ns", "o", ask("w")).of(text) && !at("abc", "", "o", ask("r")).of(text));
    assert!(at("abc", "", "rbd_info", ask("").class(rbd("metadata_list", "r"))).of(text));
    assert!(!at("abc", "", "rbd_info", ask("").class(rbd("other", "r"))).of(text));
    assert!(at("abc", "ns", "rbd_header.1", ask("").class(rbd("child_attach", "rw"))).of(text));
    assert!(!at("abc", "ns", "rbd_header.1", ask("").class(rbd("other", "rw"))).of(text));

    assert!(ask("r").of("profile read-only") && !ask("w").of("profile read-only"));
    assert!(ask("rw").of("profile read-write"));
    assert!(!ask("r").of("profile crash"));
}

#[test]
fn network_limits_the_source_address() {
    let from = |peer| Ask { peer, ..ask("rw") };
    let text = "allow * network 192.168.0.0/16, allow * network 10.0.0.0/8, allow * network fe80::/10";
    for (peer, allowed) in [
        (Some("10.1.2.3"), true),
        (Some("192.168.2.3"), true),
        (Some("192.167.2.3"), false),
        (Some("fe80::1"), true),
        (Some("fec0::1"), false),
        (None, false),
    ] {
        assert_eq!(from(peer).of(text), allowed, "{peer:?}");
    }
    assert!(from(Some("1.2.3.4")).of("allow * network 0.0.0.0/0"));
    assert!(from(Some("1.2.3.4")).of("allow * network 1.2.3.4/99"));
    for text in ["allow * network 1.2.3.4", "allow * network [::1]/128", "allow * network 1.2.3.4/"] {
        assert_eq!(cap(text).grants[0].network, Network::Nowhere, "{text:?}");
        assert!(!from(Some("1.2.3.4")).of(text));
    }
}

#[test]
fn allow_star_grants_everything() {
    assert!(OsdCap::everything().allows_everything() && cap("allow *").allows_everything());
    assert!(cap("allow r, allow * network 1.2.3.4/32").allows_everything());
    for text in ["allow rwx", "allow * pool foo", "allow * tag a b=c", "allow * namespace ''", "profile rbd"]
    {
        assert!(!cap(text).allows_everything(), "{text:?}");
    }
    assert!(!OsdCap::default().allows_everything());
    assert!(Access::ALL.contains(Access::EXECUTE));
}

proptest! {
    #[test]
    fn random_text_never_panics(text: String) {
        let _ = OsdCap::parse(&text);
    }

    #[test]
    fn shuffled_grammar_words_report_the_rest(words in prop::collection::vec(prop::sample::select(vec![
        "allow", "profile", "rbd", "r", "rwx", "*", "all", "class", "class-read", "pool", "=", "'", "\"", "foo",
        "namespace", "tag", "object_prefix", "network", "1.2.3.4/8", ";", ",", " ", "\n", "",
    ]), 0..24), gap in prop::sample::select(vec!["", " "])) {
        let text = words.join(gap);
        if let Err(e) = OsdCap::parse(&text) {
            prop_assert!(text.ends_with(&e.rest));
        }
    }

    /// More grants never allow less.
    #[test]
    fn added_grant_never_removes_permission(a in 0usize..6, b in 0usize..6, plain in prop::sample::select(vec!["r", "w", "rw"])) {
        let grants =
            ["allow r", "allow w pool foo", "allow rw namespace n", "allow x", "profile read-only", "allow class c"];
        let asked = ask(plain);
        if asked.of(grants[a]) {
            let text = [grants[b], grants[a]].join(", ");
            prop_assert!(asked.of(&text));
        }
    }
}

/// The answers of a stock cluster for each capability and operation of the interop matrix, compared with the value alone.
#[test]
fn answers_equal_a_stock_cluster() {
    let at = |pool, namespace, object, ask: Ask| Ask { pool, namespace, object, ..ask };
    let a = |ask: Ask| at("caps-a", "", "obj", ask).tagged("testapp", "role", "first");
    let b = |ask: Ask| at("caps-b", "", "obj", ask).tagged("testapp", "role", "second");
    let refcount = || call("refcount", "get", "rw");
    let hello = || call("hello", "write_return_data", "w");
    let operation = |name: &str| match name {
        "read" | "stat" | "getxattr" | "omap-get" | "notify" => a(ask("r")),
        "list" => Ask { object: "", ..a(ask("r")) },
        "write" | "append" | "setxattr" | "omap-set" => a(ask("w")),
        "create+remove" => Ask { object: "fleeting", ..a(ask("w")) },
        "watch" => a(ask("rw")),
        "call-read" => a(ask("").class(call("lock", "get_info", "r"))),
        "call-hello-read" => a(ask("").class(call("hello", "say_hello", "r"))),
        "call-write" => a(ask("").class(hello())),
        "call-read-write" => a(ask("").class(refcount())),
        "call-lock-write" => a(ask("").class(call("lock", "lock", "rw"))),
        "write+call" => a(ask("w").class(refcount())),
        "two-classes" => a(ask("").class(refcount()).class(hello())),
        "read@b" => b(ask("r")),
        "write@b" => b(ask("w")),
        "read@a/ns1" => Ask { namespace: "ns1", ..a(ask("r")) },
        "write@a/ns1" => Ask { namespace: "ns1", ..a(ask("w")) },
        "list@a/ns1" => Ask { namespace: "ns1", object: "", ..a(ask("r")) },
        "read@a/ns2" => Ask { namespace: "ns2", ..a(ask("r")) },
        "read-prefixed" => Ask { object: "pre_obj", ..a(ask("r")) },
        "write-prefixed" => Ask { object: "pre_obj", ..a(ask("w")) },
        "read-by-key" => Ask { object: "pre_key", ..a(ask("r")) },
        "read-other-by-name" => Ask { object: "keyed_prefix", ..a(ask("r")) },
        other => panic!("the matrix has an operation {other:?} that this test does not know"),
    };

    let table = include_str!("../../../../tests/interop/caps/expected.tsv");
    let mut lines = table.lines().map(|l| l.split('\t').collect::<Vec<_>>());
    let names = lines.next().expect("a heading");
    for cells in lines {
        if let [text, message] = cells[..] {
            let error = OsdCap::parse(text).expect_err(text);
            assert_eq!(format!("Error EINVAL: {error}"), message);
            continue;
        }
        for (name, errno) in names.iter().zip(&cells).skip(1) {
            let asked = Ask { peer: Some("127.0.0.1"), ..operation(name) };
            assert_eq!(asked.of(cells[0]), *errno == "0", "{name} with {:?}", cells[0]);
        }
    }
}
