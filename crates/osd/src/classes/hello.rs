//! The example class: greetings, and methods that misbehave on purpose. Clients' test suites call it.

use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;

const NAME_MAX: usize = 100;
/// Bytes of an object that the readers look at.
const READ_MAX: u64 = 1100;

fn greeting(call: &MethodCall<'_>) -> Result<Bytes, MethodStop> {
    let name = call.context.argument;
    if name.len() > NAME_MAX {
        return Err(Errno::INVAL.into());
    }
    let name: &[u8] = if name.is_empty() { b"world" } else { name };
    Ok([b"Hello, ", name, b"!"].concat().into())
}

/// `client.4123 10.0.0.1:0/99`: who calls, for the record.
fn sign(call: &mut MethodCall<'_>, attr: &str) -> Result<(), MethodStop> {
    let who = format!("{} {}", call.context.client, call.context.client_addr);
    call.set_attr(attr, who.as_bytes())
}

pub(super) fn say_hello(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let text = greeting(call)?;
    call.reply(text);
    Ok(0)
}

pub(super) fn record_hello(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let text = greeting(call)?;
    if call.exists() {
        return Err(Errno::EXIST.into());
    }
    call.write_full(text)?;
    sign(call, "said_by")?;
    Ok(0)
}

/// Changes something, returns 42 and says so; given an argument it fails, with output all the same.
pub(super) fn write_return_data(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    call.set_attr("foo", b"bar")?;
    if !call.context.argument.is_empty() {
        call.reply(&b"too much input data!"[..]);
        return Err(Errno::INVAL.into());
    }
    call.reply(&b"you might see this"[..]);
    Ok(42)
}

/// Returns more than a write may.
pub(super) fn write_too_much_return_data(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    call.set_attr("foo", b"bar")?;
    call.reply("you should not see this because it is toooooo long. ".repeat(10));
    Ok(42)
}

pub(super) fn replay(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    for piece in call.data(0, READ_MAX)?.into_pieces() {
        call.reply(piece);
    }
    Ok(0)
}

pub(super) fn turn_it_to_11(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    if !call.context.argument.is_empty() {
        return Err(Errno::INVAL.into());
    }
    let mut text = call.data(0, READ_MAX)?.to_bytes().to_vec();
    text.make_ascii_uppercase();
    call.write_full(text.into())?;
    sign(call, "amplified_by")?;
    Ok(0)
}

/// Reads though it only said that it writes.
pub(super) fn bad_reader(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    replay(call)
}

/// Writes though it only said that it reads.
pub(super) fn bad_writer(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let text = call.context.argument.clone();
    call.write_full(text)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::Object;

    #[test]
    fn a_greeting_has_bounds() {
        let mut o = Object::missing();
        assert_eq!(o.call_bare("hello", "say_hello").unwrap(), "Hello, world!");
        assert_eq!(o.call_raw("hello", "say_hello", b"Tester").output.to_bytes(), "Hello, Tester!");
        assert_eq!(o.call_raw("hello", "say_hello", &[b'x'; 101]).result, Errno::INVAL.result());
        assert_eq!(o.call_raw("hello", "say_hello", &[b'x'; 100]).result, 0);
    }

    #[test]
    fn a_greeting_is_recorded_once_and_made_loud() {
        let mut o = Object::missing();
        o.call_bare("hello", "record_hello").unwrap();
        assert_eq!(o.call_bare("hello", "record_hello"), Err(Errno::EXIST));
        assert_eq!(o.attr("said_by").unwrap(), "client.1 v2:127.0.0.1:0/1");
        assert_eq!(o.call_bare("hello", "replay").unwrap(), "Hello, world!");
        o.call_bare("hello", "turn_it_to_11").unwrap();
        assert_eq!(o.call_bare("hello", "replay").unwrap(), "HELLO, WORLD!");
    }

    #[test]
    fn a_write_may_return_data_and_a_failed_one_leaves_nothing() {
        let mut o = Object::existing();
        let failed = o.call_raw("hello", "write_return_data", b"x");
        assert_eq!((failed.result, &failed.output.to_bytes()[..]), (-22, &b"too much input data!"[..]));
        assert!(failed.operations.is_empty() && o.attr("foo").is_none());
        let done = o.call_raw("hello", "write_return_data", b"");
        let silent = o.call_raw("hello", "writes_dont_return_data", b"");
        assert_eq!(silent.result, done.result);
        assert_eq!((done.result, &done.output.to_bytes()[..]), (42, &b"you might see this"[..]));
        assert_eq!(o.attr("foo").unwrap(), "bar");
        assert_eq!(o.call_raw("hello", "write_too_much_return_data", b"").output.len(), 520);
    }

    #[test]
    fn a_method_does_only_what_it_said() {
        let mut o = Object::existing();
        assert_eq!(o.call_bare("hello", "bad_reader"), Err(Errno::IO));
        assert_eq!(o.call_bare("hello", "bad_writer"), Err(Errno::IO));
    }
}
