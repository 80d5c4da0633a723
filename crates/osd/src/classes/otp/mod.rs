//! One-time passwords of the gateway's users.
//!
//! A check and its result are two calls: a write that fails changes nothing, and the failed attempt must be kept.

mod sha1;

use super::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use wire::types::cls::otp::{
    CheckOp, GetOp, OtpCheck, OtpHeader, OtpInfo, OtpInstance, OtpList, RESULT_FAIL, RESULT_SUCCESS,
    RESULT_UNKNOWN, RemoveOp, ResultReply, SEED_BASE32, TimeOp, TimeReply,
};
use wire::types::{Name, UTime};

type MethodResult = Result<i32, MethodStop>;

const HEADER: &str = "header";
const PREFIX: &str = "otp/";
/// Attempts within one step.
const ATTEMPTS_MAX: usize = 5;
/// Tokens of one call, and steps on either side that a check compares with: more are refused.
const TOKENS_MAX: usize = 1000;
const WINDOW_MAX: u32 = 1000;

fn stored_header(call: &mut MethodCall<'_>) -> Result<OtpHeader, MethodStop> {
    Ok(call.omap_as(HEADER)?.unwrap_or_default())
}

fn bytes_of_seed(info: &OtpInfo) -> Option<Vec<u8>> {
    match info.seed_type {
        SEED_BASE32 => from_base32(&info.seed),
        _ => from_hex(&info.seed),
    }
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
    let (pairs, rest) = text.as_chunks::<2>();
    rest.is_empty()
        .then(|| pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect())?
}

/// Without regard to case, spaces, hyphens and padding.
fn from_base32(text: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for b in text.iter().filter(|b| !matches!(b, b' ' | b'-' | b'=')) {
        let value = match b.to_ascii_uppercase() {
            letter @ b'A'..=b'Z' => letter - b'A',
            digit @ b'2'..=b'7' => digit - b'2' + 26,
            _ => return None,
        };
        bits = (bits << 5 | u32::from(value)) & 0xfff;
        count += 5;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

pub(super) fn otp_set(call: &mut MethodCall<'_>) -> MethodResult {
    let op: OtpList = call.argument()?;
    if op.entries.len() > TOKENS_MAX {
        return Err(Errno::TOOBIG.into());
    }
    let mut header = stored_header(call)?;
    for mut info in op.entries {
        let key = omap::key(PREFIX, &info.id);
        let before: OtpInstance = call.omap_as(&key)?.unwrap_or_default();
        info.secret = bytes_of_seed(&info).ok_or(MethodStop::Failed(Errno::INVAL))?.into();
        header.ids.insert(info.id.clone());
        call.set_omap(key, &OtpInstance { info, ..before })?;
    }
    call.set_omap(HEADER, &header)?;
    Ok(0)
}

/// Unknown ids are ignored.
pub(super) fn otp_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let op: RemoveOp = call.argument()?;
    let mut header = stored_header(call)?;
    let known = op.ids.iter().filter(|id| header.ids.remove(*id));
    let keys: Vec<Bytes> = known.map(|id| omap::key(PREFIX, id)).collect();
    if !keys.is_empty() {
        call.remove_omap_keys(&keys)?;
        call.set_omap(HEADER, &header)?;
    }
    Ok(0)
}

/// Unknown ids are left out.
pub(super) fn otp_get(call: &mut MethodCall<'_>) -> MethodResult {
    let op: GetOp = call.argument()?;
    let header = stored_header(call)?;
    let ids: Vec<Name> = match op.all {
        true => header.ids.into_iter().collect(),
        false => op.ids.into_iter().filter(|id| header.ids.contains(id)).collect(),
    };
    let values = call.omap_values(ids.iter().map(|id| omap::key(PREFIX, id)).collect())?;
    let info = |(_, value): &(Bytes, Bytes)| Ok(omap::stored::<OtpInstance>(value)?.info);
    let entries = values.iter().map(info).collect::<Result<_, MethodStop>>()?;
    call.finish_with(&OtpList { entries })
}

/// Forgets attempts that are older than a step.
fn trim(instance: &mut OtpInstance, now: UTime) {
    let start = now.as_nanos().saturating_sub(u64::from(instance.info.step_s) * 1_000_000_000);
    let old = instance.checks.iter().take_while(|check| check.time.as_nanos() < start).count();
    instance.checks.drain(..old);
}

pub(super) fn otp_check(call: &mut MethodCall<'_>) -> MethodResult {
    let op: CheckOp = call.argument()?;
    let key = omap::key(PREFIX, &op.id);
    let mut instance: OtpInstance = call.omap_must(&key)?;
    let now = call.context.now;
    trim(&mut instance, now);
    if instance.checks.len() >= ATTEMPTS_MAX {
        return Ok(0);
    }
    let step = accepted_step(&instance.info, now.sec, &op.value).filter(|step| *step > instance.last_success);
    let result = if step.is_some() { RESULT_SUCCESS } else { RESULT_FAIL };
    instance.last_success = step.unwrap_or(instance.last_success);
    instance.checks.push(OtpCheck { token: op.token, time: now, result });
    call.set_omap(key, &instance)?;
    Ok(0)
}

/// The result of the last attempt with the token.
pub(super) fn otp_get_result(call: &mut MethodCall<'_>) -> MethodResult {
    let op: CheckOp = call.argument()?;
    let mut instance: OtpInstance = call.omap_must(omap::key(PREFIX, &op.id))?;
    let now = call.context.now;
    trim(&mut instance, now);
    let found = instance.checks.into_iter().rfind(|check| check.token == op.token);
    let result = found.unwrap_or(OtpCheck { token: op.token, time: now, result: RESULT_UNKNOWN });
    call.finish_with(&ResultReply { result })
}

pub(super) fn get_current_time(call: &mut MethodCall<'_>) -> MethodResult {
    call.argument::<TimeOp>()?;
    let time = call.context.now;
    call.finish_with(&TimeReply { time })
}

/// The present step plus the distance of the step that the value belongs to, as `liboath` counts it.
fn accepted_step(info: &OtpInfo, now_s: u32, value: &[u8]) -> Option<u64> {
    let present = u64::try_from(i64::from(now_s) - i64::from(info.time_offset_s))
        .ok()?
        .checked_div(info.step_s.into())?;
    let is_code =
        |step: u64| code(&info.secret, step, value.len()).is_some_and(|code| code.as_bytes() == value);
    (0..=u64::from(info.window.min(WINDOW_MAX)))
        .find(|distance| is_code(present + distance) || present.checked_sub(*distance).is_some_and(is_code))
        .map(|distance| present + distance)
}

/// The one-time password of a step (RFC 4226); `None` for a length that it cannot have.
fn code(secret: &[u8], step: u64, digits: usize) -> Option<String> {
    let modulus = match digits {
        6..=8 => 10u32.pow(digits as u32),
        _ => return None,
    };
    let mac = sha1::hmac(secret, &step.to_be_bytes());
    let at = usize::from(mac[19] & 0x0f);
    let number = u32::from_be_bytes(mac[at..at + 4].try_into().expect("four bytes")) & 0x7fff_ffff;
    Some(format!("{:0digits$}", number % modulus))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    const SECRET: &[u8] = b"12345678901234567890";

    fn token(id: &str) -> OtpInfo {
        let seed: String = SECRET.iter().map(|b| format!("{b:02x}")).collect();
        OtpInfo {
            kind: 2,
            id: id.into(),
            seed: seed.into(),
            seed_type: 1,
            step_s: 30,
            window: 2,
            ..OtpInfo::default()
        }
    }

    fn check(o: &mut Object, value: &str, token: &str) -> u8 {
        let op = CheckOp { id: "t".into(), value: value.into(), token: token.into() };
        o.call("otp", "otp_check", &op).unwrap();
        decode::<ResultReply>(&o.call("otp", "otp_get_result", &op).unwrap()).result.result
    }

    #[test]
    fn codes_are_those_of_rfc_6238() {
        for (seconds, want) in [(59u64, "94287082"), (1111111109, "07081804"), (20000000000, "65353130")] {
            assert_eq!(code(SECRET, seconds / 30, 8).unwrap(), want);
        }
        assert_eq!(code(SECRET, 1, 5), None);
        assert_eq!(from_base32(b"GEZD GNBV-gy3tqojqGEZDGNBVGY3TQOJQ").unwrap(), SECRET);
        assert_eq!((from_hex(b"0g"), from_base32(b"1")), (None, None));
    }

    #[test]
    fn password_is_good_once_and_attempts_are_counted() {
        let mut o = Object::missing();
        o.call("otp", "otp_set", &OtpList { entries: vec![token("t")] }).unwrap();
        o.now.sec = 59;
        assert_eq!(check(&mut o, "94287082", "a"), RESULT_SUCCESS);
        assert_eq!(check(&mut o, "94287082", "b"), RESULT_FAIL, "used");
        for _ in 0..3 {
            assert_eq!(check(&mut o, "000000", "c"), RESULT_FAIL);
        }
        let next = code(SECRET, 3, 6).unwrap();
        assert_eq!(check(&mut o, &next, "d"), RESULT_UNKNOWN, "too many attempts");
        o.now.sec = 59 + 31;
        assert_eq!(check(&mut o, &next, "e"), RESULT_SUCCESS);
        let now: TimeReply = decode(&o.call("otp", "get_current_time", &TimeOp {}).unwrap());
        assert_eq!(now.time, o.now);
    }

    #[test]
    fn tokens_are_listed_and_removed() {
        let mut o = Object::missing();
        o.call("otp", "otp_set", &OtpList { entries: vec![token("t"), token("u")] }).unwrap();
        let bad = OtpInfo { seed: "xyz".into(), ..token("v") };
        assert_eq!(o.call("otp", "otp_set", &OtpList { entries: vec![bad] }), Err(Errno::INVAL));
        let mut get = |op: GetOp| -> Vec<Name> {
            let list: OtpList = decode(&o.call("otp", "otp_get", &op).unwrap());
            list.entries.into_iter().map(|e| e.id).collect()
        };
        assert_eq!(get(GetOp { all: true, ids: vec![] }), ["t", "u"]);
        assert_eq!(get(GetOp { all: false, ids: vec!["u".into(), "x".into()] }), ["u"]);
        o.call("otp", "otp_remove", &RemoveOp { ids: vec!["t".into(), "x".into()] }).unwrap();
        assert_eq!(o.omap("otp/t"), None);
        let op = CheckOp { id: "t".into(), ..CheckOp::default() };
        assert_eq!(o.call("otp", "otp_check", &op), Err(Errno::NOENT));
    }
}
