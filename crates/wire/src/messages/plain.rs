//! Messages whose front is their fields in order: one table a message gives its struct and its wire form.
//!
//! `#[since(N)]` marks a field that is absent below message version N; `#[if_present("who left it out")]` one that
//! old senders left off without a new version. Both then take their `Default`. `data NAME` says that the message's
//! data section is part of it.

macro_rules! plain_message {
    (
        $(#[$doc:meta])*
        $name:ident = $kind:literal, version $version:literal, compat $compat:literal
        $(, priority $priority:literal)? {
            $(
                $(#[doc = $field_doc:literal])*
                $(#[since($since:literal)])?
                $(#[if_present($old:literal)])?
                $field:ident: $ty:ty
            ),* $(,)?
        }
        $($(#[$data_doc:meta])* data $data:ident)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[doc = $field_doc])* pub $field: $ty,)*
            $($(#[$data_doc])* pub $data: ::bytes::Bytes,)?
        }

        impl $crate::messages::MessageBody for $name {
            const TYPE: u16 = $kind;
            const VERSION: u16 = $version;
            const COMPAT: u16 = $compat;
            $(const PRIORITY: u16 = $priority;)?

            #[allow(unused_variables)]
            fn encode(&self, out: &mut $crate::messages::Outgoing) {
                $(out.front.put(&self.$field);)*
                $(out.data.push(self.$data.clone());)?
            }

            #[allow(unused_variables, unused_mut)]
            fn decode(
                header: &$crate::messages::Header,
                payload: &$crate::messages::Payload,
            ) -> Result<Self, ::codec::DecodeError> {
                let mut r = ::codec::Reader::new(&payload.front);
                $(let $field = $crate::messages::plain::read_field!(
                    r, header, stringify!($field), $($since)?; $($old)?
                );)*
                Ok($name { $($field,)* $($data: payload.data.clone(),)? })
            }
        }
    };
}

macro_rules! read_field {
    ($r:ident, $header:ident, $name:expr, ;) => {{
        $r.label($name);
        $r.get()?
    }};
    ($r:ident, $header:ident, $name:expr, $since:literal;) => {
        ::codec::field(&mut $r, $name, $header.version >= $since, Default::default)?
    };
    ($r:ident, $header:ident, $name:expr, ; $old:literal) => {{
        let present = !$r.is_empty();
        ::codec::field(&mut $r, $name, present, Default::default)?
    }};
}

pub(crate) use plain_message;
pub(crate) use read_field;
