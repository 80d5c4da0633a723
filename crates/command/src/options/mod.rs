//! Options: the table of all of them, their values, and the layers that values come from.
//!
//! - [`table`]: the one table, `table.tsv`. Adding an option is adding a row there and reading it where it acts.
//! - [`value`]: how values are written and read.
//! - [`layers`]: default, monitors' database, file, command line, override; one [`Layers`] a daemon.
//! - [`expand`]: `$name`, `$id` and their like inside values.
//! - [`commands`]: `config …` and `injectargs`, the same for every daemon.
//! - [`report`]: what the manager is told, for `ceph config show`.
//! - [`option_set!`](crate::option_set): a typed snapshot of the options that one part of the program acts on.

pub mod commands;
pub mod expand;
pub mod layers;
pub mod report;
pub mod table;
pub mod value;

pub use expand::Identity;
pub use layers::{Layers, Problem, Refused, Source};
pub use table::{Daemon, Definition, When, find, normal_name};
pub use value::{Unfit, Value};

/// The options that one part of the program acts on: a struct with a typed field for each, read at once.
///
/// Fields are `pub(crate)`, so that the compiler warns of one that is never read; `CONSUMED` lists the options, for
/// the test that compares the table with its consumers; and reading panics in debug builds when the table does not
/// say that these daemons act on the option.
///
/// ```
/// command::option_set! {
///     /// When an OSD gives up on a peer.
///     pub struct Heartbeats for Osd, Live {
///         grace: std::time::Duration = "osd_heartbeat_grace",
///     }
/// }
/// # use command::options::{Identity, Layers};
/// let layers = Layers::new(Identity::named("osd.0"));
/// # impl Heartbeats { fn used(&self) -> u64 { self.grace.as_secs() } }
/// assert_eq!(Heartbeats::read(&layers).used(), 20);
/// ```
#[macro_export]
macro_rules! option_set {
    ($(#[$meta:meta])* $vis:vis struct $Name:ident for $($Daemon:ident)|+, $When:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $option:literal),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        $vis struct $Name {
            $($(#[$field_meta])* pub(crate) $field: $type),*
        }

        impl $Name {
            pub const CONSUMED: $crate::options::Consumed = $crate::options::Consumed {
                daemons: &[$($crate::options::Daemon::$Daemon),+],
                when: $crate::options::When::$When,
                names: &[$($option),*],
            };

            $vis fn read(layers: &$crate::options::Layers) -> $Name {
                debug_assert_eq!(Self::CONSUMED.not_in_table(), Vec::<&str>::new(), "the table's column `acts`");
                $Name { $($field: layers.get($option)),* }
            }
        }
    };
}

/// The options that one [`option_set!`](crate::option_set) reads.
#[derive(Clone, Copy, Debug)]
pub struct Consumed {
    pub daemons: &'static [Daemon],
    pub when: When,
    pub names: &'static [&'static str],
}

impl Consumed {
    /// Options whose row does not say that these daemons act on them then.
    pub fn not_in_table(&self) -> Vec<&'static str> {
        let acts =
            |row: &Definition| self.daemons.iter().all(|daemon| row.acts_on(*daemon) == Some(self.when));
        self.names.iter().copied().filter(|name| !find(name).is_some_and(acts)).collect()
    }
}
