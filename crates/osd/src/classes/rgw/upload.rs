//! Parts of multipart uploads.

use super::{MethodCall, MethodResult};
use crate::errno::Errno;
use wire::types::cls::rgw::{UploadPart, UploadPartOp};

/// Stores a part, with the prefixes of what was uploaded in its place before. `EEXIST` if its own prefix is among them.
pub fn mp_upload_part_info_update(call: &mut MethodCall<'_>) -> MethodResult {
    let UploadPartOp { part_key, mut part } = call.argument()?;
    if let Some(stored) = call.omap_as::<UploadPart>(&part_key)? {
        if !stored.manifest.is_empty {
            part.past_prefixes.insert(stored.manifest.prefix);
        }
        part.past_prefixes.extend(stored.past_prefixes);
    }
    if part.past_prefixes.contains(&part.manifest.prefix) {
        return Err(Errno::EXIST.into());
    }
    call.set_omap(&part_key, &part)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    #[test]
    fn part_remembers_what_it_replaces() {
        let mut o = Object::existing();
        let put = |o: &mut Object, prefix: &str| {
            let op = UploadPartOp { part_key: "part.1".into(), part: UploadPart::with_prefix(prefix) };
            o.call("rgw", "mp_upload_part_info_update", &op).map(|_| ())
        };
        for prefix in ["a", "b", "c"] {
            put(&mut o, prefix).unwrap();
        }
        let part: UploadPart = decode(&o.omap("part.1").unwrap());
        assert_eq!(part.manifest.prefix, "c");
        assert_eq!(part.past_prefixes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(put(&mut o, "a"), Err(Errno::EXIST));
        assert_eq!(put(&mut o, "c"), Err(Errno::EXIST));
        o.put_omap("part.1", b"damaged");
        assert_eq!(put(&mut o, "d"), Err(Errno::IO));
        assert_eq!(o.call_raw("rgw", "mp_upload_part_info_update", b"").result, Errno::INVAL.result());
    }
}
