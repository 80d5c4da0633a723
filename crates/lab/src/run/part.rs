//! One host's part of a point: preparation, the load, and the tool's result.

use super::clients::together;
use crate::cluster::Login;
use crate::load::{Load, ceiling};
use crate::matrix::{Op, Spec, Tool};
use crate::results::Measured;
use crate::tool::process::{CLIENTS, run, run_all, stopped};
use crate::tool::release::Release;
use crate::tool::{fio, rados_bench};
use anyhow::{Context, ensure};
use client_host::Modes;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub type Artifacts = Vec<(String, Vec<u8>)>;

/// Called when all is ready; the load begins when it returns.
pub type Begin<'a> = &'a mut dyn FnMut() -> anyhow::Result<()>;

/// The folder that a host's stock programs see: the cluster's `ceph.conf` and key, and their logs.
pub struct ClientFolder {
    dir: PathBuf,
    pub conf: PathBuf,
    pub tools: Release,
}

impl ClientFolder {
    /// The `ceph.conf` of the point's clients: the cluster's, with the key beside it, and with how connections are
    /// protected.
    pub fn make(
        dir: &Path,
        conf: &str,
        keyring: &str,
        mode: &str,
        tools: Release,
    ) -> anyhow::Result<ClientFolder> {
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let dir = std::fs::canonicalize(dir)?;
        let is_keyring = |line: &&str| {
            line.split_once('=').is_some_and(|(key, _)| ["keyring", "key"].contains(&key.trim()))
        };
        let mut text: String =
            conf.lines().filter(|line| !is_keyring(line)).flat_map(|l| [l, "\n"]).collect();
        text += "\n[client]\n";
        if !keyring.is_empty() {
            write_private(&dir.join("keyring"), keyring)?;
            text += &format!("keyring = {}\n", dir.join("keyring").display());
        }
        if mode != "default" {
            text += &format!("ms_client_mode = {mode}\nms_mon_client_mode = {mode}\n");
        }
        let conf = dir.join("ceph.conf");
        std::fs::write(&conf, text).with_context(|| conf.display().to_string())?;
        tools.show(&dir)?;
        Ok(ClientFolder { dir, conf, tools })
    }
}

impl Drop for ClientFolder {
    fn drop(&mut self) {
        self.tools.hide(&self.dir);
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

/// A key's file has mode 0600.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    drop(std::fs::remove_file(path));
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).with_context(|| path.display().to_string())
}

/// The pools of a point.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pools {
    pub data: String,
    /// Where the headers of images are, when the data's pool cannot hold them.
    pub headers: Option<String>,
}

/// The load of one host on a cluster.
pub struct Part<'a> {
    pub login: &'a Login,
    pub client: &'a ClientFolder,
    pub pools: &'a Pools,
    pub spec: &'a Spec,
}

impl Part<'_> {
    pub fn load(&self, begin: Begin<'_>, artifacts: &mut Artifacts) -> anyhow::Result<Measured> {
        match self.spec.tool {
            Tool::RadosBench => self.objects(begin, artifacts),
            Tool::FioRbd => self.images(begin, artifacts),
            _ => self.own(begin),
        }
    }

    fn own(&self, begin: Begin<'_>) -> anyhow::Result<Measured> {
        let ceiling = ceiling::measure(self.spec)?;
        let access = self.login.access(&self.client.conf, Modes::of_name(&self.spec.mode))?;
        *CLIENTS.lock().expect("no holder panics") = vec![std::process::id()];
        let measured = Load::new(&access, &self.pools.data, self.spec).run(begin);
        CLIENTS.lock().expect("no holder panics").clear();
        let measured = measured?;
        Ok(Measured { ceiling_ops_per_s: ceiling_held(ceiling, measured.ops_per_s), ..measured })
    }

    fn objects(&self, begin: Begin<'_>, artifacts: &mut Artifacts) -> anyhow::Result<Measured> {
        let Part { client, pools, spec, .. } = self;
        let commands = |spec: &Spec, op: Op, seconds: f64| {
            rados_bench::commands(&client.tools, &client.conf, &pools.data, spec, op, seconds)
        };
        ensure!(
            spec.op != Op::RandMixed,
            "rados bench does not mix reads and writes: use the tool shoal or fio-rbd"
        );
        if spec.op.reads() {
            // As long as the reads will take: in-order reads end where the objects end.
            let fill = Spec { depth: spec.depth.max(64), ..(*spec).clone() };
            run_all(commands(&fill, Op::Write, spec.seconds), patience(spec))
                .context("writing what will be read")?;
        } else if spec.ramp_s > 0.0 {
            run_all(commands(spec, Op::Write, spec.ramp_s), patience(spec)).context("warming up")?;
        }
        begin()?;
        let finished = run_all(commands(spec, spec.op, spec.seconds), patience(spec))?;
        let mut parts = Vec::new();
        for (n, one) in finished.iter().enumerate() {
            artifacts.push((format!("rados-bench.{n}.txt"), one.output.clone().into_bytes()));
            parts.push(rados_bench::parse(&one.output, spec)?);
        }
        let mut all = together(parts);
        all.cpu_us_per_op =
            vec![("client".into(), finished.iter().map(|f| f.cpu_s).sum::<f64>() * 1e6 / all.ops)];
        Ok(all)
    }

    fn images(&self, begin: Begin<'_>, artifacts: &mut Artifacts) -> anyhow::Result<Measured> {
        let Part { client, pools, spec, .. } = self;
        let pool = pools.headers.as_deref().unwrap_or(&pools.data);
        for n in spec.first_client..spec.first_client + spec.clients {
            let mut create = client.tools.command("rbd");
            let size_mib = spec.volume_bytes.div_ceil(1 << 20).to_string();
            create.arg("-c").arg(&client.conf).args(["create", "-p", pool]);
            create.args([&fio::image_name(n), "--size", &size_mib]);
            if pools.headers.is_some() {
                create.args(["--data-pool", &pools.data]);
            }
            run(create, Duration::from_secs(60)).context("making an image")?;
        }
        let image = fio::Image { tools: &client.tools, pool, conf: &client.conf };
        run(fio::fill_command(spec, Some(&image)), Duration::from_secs(3600))
            .context("filling the images")?;
        with_fio(spec, Some(&image), &client.dir, begin, artifacts)
    }
}

pub fn patience(spec: &Spec) -> Duration {
    Duration::from_secs_f64((spec.seconds + spec.ramp_s) * 1.5 + 60.0)
}

/// A disk or a file of this host, without a cluster.
pub fn disk(
    spec: &Spec,
    scratch: &Path,
    begin: Begin<'_>,
    artifacts: &mut Artifacts,
) -> anyhow::Result<Measured> {
    let path = spec.path.as_deref().context("a path is missing")?;
    let existed = path.exists();
    let outcome = (|| {
        if !existed || (path.is_file() && std::fs::metadata(path)?.len() < spec.volume_bytes) {
            run(fio::fill_command(spec, None), Duration::from_secs(3600)).context("filling the file")?;
        }
        with_fio(spec, None, scratch, begin, artifacts)
    })();
    if !existed {
        drop(std::fs::remove_file(path));
    }
    outcome
}

fn with_fio(
    spec: &Spec,
    image: Option<&fio::Image<'_>>,
    scratch: &Path,
    begin: Begin<'_>,
    artifacts: &mut Artifacts,
) -> anyhow::Result<Measured> {
    ensure!(!stopped(), "interrupted");
    let logs = scratch.join("fio");
    drop(std::fs::remove_dir_all(&logs));
    std::fs::create_dir_all(&logs)?;
    begin()?;
    let finished = run(fio::command(spec, spec.op, image, &logs), patience(spec))?;
    artifacts.push(("fio.json".into(), finished.output.clone().into_bytes()));
    let mut measured = fio::parse(&finished.output, spec, &logs)?;
    measured.cpu_us_per_op = vec![("client".into(), finished.cpu_s * 1e6 / measured.ops)];
    Ok(measured)
}

/// A client that went far beyond its ceiling had more of the host in the run than when the ceiling was measured: then it
/// is not known.
fn ceiling_held(ceiling: f64, ops_per_s: f64) -> Option<f64> {
    const REFUTED: f64 = 1.5;
    Some(ceiling).filter(|ceiling| ops_per_s < REFUTED * ceiling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceeded_ceiling_is_dropped() {
        assert_eq!(ceiling_held(1000.0, 400.0), Some(1000.0));
        assert_eq!(ceiling_held(1000.0, 1050.0), Some(1000.0), "the client is the bound");
        assert_eq!(ceiling_held(1000.0, 9000.0), None, "others were at work meanwhile");
    }

    #[test]
    fn client_conf_has_its_own_key_and_mode() {
        let dir = std::env::temp_dir().join(format!("shoal-lab-test-client-{}", std::process::id()));
        let conf = "[global]\nmon host = x\nkeyring = /elsewhere\n[client.admin]\nkeyring=/other\n";
        let made =
            ClientFolder::make(&dir, conf, "[client.admin]\nkey = abc\n", "secure", Release::default())
                .unwrap();
        let text = std::fs::read_to_string(&made.conf).unwrap();
        assert!(!text.contains("elsewhere") && !text.contains("other"), "{text}");
        assert!(
            text.contains("mon host = x") && text.contains("/keyring\nms_client_mode = secure"),
            "{text}"
        );
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(dir.join("keyring")).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        drop(made);
        assert!(!dir.exists());
    }
}
