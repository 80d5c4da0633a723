//! Bytes of an attacker as the arguments of a command: called by the fuzz target and by the replay of its corpus.

use crate::{Args, signature};

/// One parameter of every type that signatures have.
const SIGNATURE: &str = "test name=int,type=CephInt,range=0|100 name=float,type=CephFloat,range=-1|1,req=false \
     name=choice,type=CephChoices,strings=a|b,req=false name=texts,type=CephString,n=N,req=false \
     name=osd,type=CephOsdName,req=false name=flag,type=CephBool,req=false";

/// Parses the arguments and reads each in every form that a command may ask for.
///
/// # Panics
/// If an argument that the signature admits is outside the range that the signature names.
pub fn arguments(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(args) = Args::parse(text) else { return };
    let admitted = signature::check(SIGNATURE, &args).is_ok();
    for name in ["int", "float", "choice", "texts", "osd", "flag", "format", "caps"] {
        let _ = (args.text(name), args.int(name), args.float(name), args.flag(name), args.texts(name));
        let _ = args.osd(name);
    }
    if admitted {
        assert!(args.int("int").is_none_or(|n| (0..=100).contains(&n)), "{text}");
        assert!(args.float("float").is_none_or(|n| (-1.0..=1.0).contains(&n)), "{text}");
    }
    let _ = (args.format(), args.for_caps());
}
