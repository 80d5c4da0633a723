//! Targets of stored options: the daemons that a value of the monitors' database is for.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use wire::types::AuthName;

/// Section and mask of a value: `osd/class:ssd`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Target {
    /// `global`, a type, or a type and a name; a name may have dots: `client.rgw` holds for `client.rgw.a` too.
    pub section: String,
    pub host: Option<String>,
    pub device_class: Option<String>,
}

/// The receiver of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Receiver<'a> {
    pub name: &'a AuthName,
    pub host: &'a str,
    pub device_class: &'a str,
}

impl Target {
    pub fn parse(text: &str) -> Result<Target, String> {
        let mut parts = text.split('/');
        let first = parts.next().unwrap_or_default();
        let mut target = Target::default();
        let is_mask = |part: &str| part.contains(':');
        if !is_mask(first) {
            target.section = first.to_owned();
        }
        let masks = if is_mask(first) { text.split('/') } else { parts };
        for part in masks {
            match part.split_once(':') {
                Some(("host", host)) => target.host = Some(host.into()),
                Some(("class", class)) => target.device_class = Some(class.into()),
                _ => return Err(format!("unrecognized config target '{text}'")),
            }
        }
        if target.section.is_empty() {
            target.section = "global".into();
        }
        let kind = target.section.split('.').next().unwrap_or_default();
        let known = ["global", "mon", "mgr", "osd", "mds", "client"].contains(&kind);
        let whole = !target.section.ends_with('.') && (kind != "global" || target.section == "global");
        if known && whole { Ok(target) } else { Err(format!("unrecognized config target '{text}'")) }
    }

    pub fn mask(&self) -> String {
        let host = self.host.as_ref().map(|h| format!("host:{h}"));
        let class = self.device_class.as_ref().map(|c| format!("class:{c}"));
        host.into_iter().chain(class).collect::<Vec<_>>().join("/")
    }

    /// Specificity for the receiver; `None` when the target does not cover it.
    pub(crate) fn rank(&self, to: &Receiver<'_>) -> Option<(usize, usize)> {
        let fits = |mask: &Option<String>, actual: &str| mask.as_deref().is_none_or(|m| m == actual);
        if !fits(&self.host, to.host) || !fits(&self.device_class, to.device_class) {
            return None;
        }
        let masks = usize::from(self.host.is_some()) + usize::from(self.device_class.is_some());
        let name = to.name.to_string();
        let depth = match self.section.as_str() {
            "global" => 0,
            section if section == name => section.split('.').count(),
            section => {
                name.strip_prefix(section).filter(|rest| rest.starts_with('.'))?;
                section.split('.').count()
            }
        };
        Some((depth, masks))
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.mask().as_str() {
            "" => f.write_str(&self.section),
            mask => write!(f, "{}/{mask}", self.section),
        }
    }
}

impl Encode for Target {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.section);
        w.put(&self.host);
        w.put(&self.device_class);
    }
}

impl Decode for Target {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Target { section: r.get()?, host: r.get()?, device_class: r.get()? })
    }
}

/// One value set or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    pub target: Target,
    pub option: String,
    /// `None` removes.
    pub value: Option<String>,
}

impl Encode for ConfigChange {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.target);
        w.put(&self.option);
        w.put(&self.value);
    }
}

impl Decode for ConfigChange {
    const MIN_LEN: usize = 11;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(ConfigChange { target: r.get()?, option: r.get()?, value: r.get()? })
    }
}
