//! The store of results: one SQLite file. A run that has ended cannot be changed; a run can be copied to another file.
//!
//! A run that is interrupted keeps every point that was complete. Samples are kept by point, artifacts (the raw
//! output of every tool) by point and name. Export and import copy whole runs between two such files.

use super::record::{PointRecord, RunRecord, Sample};
use anyhow::{Context, bail, ensure};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use std::path::{Path, PathBuf};

pub const FILE: &str = "lab.sqlite";
/// In the file's header: ours, and which form.
const APPLICATION_ID: i32 = 0x5348_4C42;
const FORM: i32 = 1;

const SCHEMA: &str = "
CREATE TABLE runs (id TEXT PRIMARY KEY, started REAL NOT NULL, ended REAL, state TEXT NOT NULL, record TEXT NOT NULL);
CREATE TABLE points (id INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES runs, turn INTEGER NOT NULL,
    record TEXT NOT NULL, UNIQUE (run, turn));
CREATE TABLE samples (point INTEGER NOT NULL REFERENCES points, at_s REAL NOT NULL, source TEXT NOT NULL,
    metric TEXT NOT NULL, value REAL NOT NULL);
CREATE INDEX samples_of_point ON samples (point, source, metric);
CREATE TABLE artifacts (run TEXT NOT NULL REFERENCES runs, turn INTEGER, name TEXT NOT NULL, content BLOB NOT NULL);
CREATE TRIGGER runs_end_once BEFORE UPDATE ON runs WHEN OLD.state <> 'running'
    BEGIN SELECT RAISE(ABORT, 'a run that has ended is not changed'); END;
CREATE TRIGGER points_stay BEFORE UPDATE ON points BEGIN SELECT RAISE(ABORT, 'a point is not changed'); END;
CREATE TRIGGER samples_stay BEFORE UPDATE ON samples BEGIN SELECT RAISE(ABORT, 'a sample is not changed'); END;
CREATE TRIGGER artifacts_stay BEFORE UPDATE ON artifacts BEGIN SELECT RAISE(ABORT, 'an artifact is not changed'); END;
";

pub struct Results {
    db: Connection,
    path: PathBuf,
}

impl Results {
    /// Opens the results of a folder, and makes them when they are not there.
    pub fn open(dir: &Path) -> anyhow::Result<Results> {
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        Results::open_file(&dir.join(FILE))
    }

    pub fn open_file(path: &Path) -> anyhow::Result<Results> {
        let db = Connection::open(path).with_context(|| format!("opening {}", path.display()))?;
        db.busy_timeout(std::time::Duration::from_secs(10))?;
        let id: i32 = db
            .query_row("PRAGMA application_id", [], |row| row.get(0))
            .with_context(|| format!("{} is not a results file", path.display()))?;
        let form: i32 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
        if tables == 0 {
            db.execute_batch(&format!(
                "PRAGMA journal_mode = WAL; BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION_ID};
                 PRAGMA user_version = {FORM}; COMMIT;"
            ))?;
        } else {
            ensure!(id == APPLICATION_ID, "{} is another program's database", path.display());
            ensure!(form <= FORM, "{} was written by a newer shoal (form {form})", path.display());
        }
        db.execute_batch("PRAGMA foreign_keys = ON")?;
        Ok(Results { db, path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn begin(&self, run: &RunRecord) -> anyhow::Result<()> {
        self.db.execute(
            "INSERT INTO runs VALUES (?1, ?2, NULL, 'running', ?3)",
            params![run.id, run.started_unix_s, serde_json::to_string(run)?],
        )?;
        Ok(())
    }

    /// After this the run is as it is for ever.
    pub fn end(&self, id: &str, state: &str, ended_unix_s: f64) -> anyhow::Result<()> {
        self.db.execute(
            "UPDATE runs SET state = ?2, ended = ?3 WHERE id = ?1",
            params![id, state, ended_unix_s],
        )?;
        Ok(())
    }

    /// A point with all that belongs to it, at once or not at all. The point's id is given by the database.
    pub fn add_point(
        &mut self,
        point: &PointRecord,
        samples: &[Sample],
        artifacts: &[(String, Vec<u8>)],
    ) -> anyhow::Result<i64> {
        let transaction = self.db.transaction()?;
        transaction.execute(
            "INSERT INTO points (run, turn, record) VALUES (?1, ?2, ?3)",
            params![point.run, point.turn, serde_json::to_string(point)?],
        )?;
        let id = transaction.last_insert_rowid();
        {
            let mut insert = transaction.prepare("INSERT INTO samples VALUES (?1, ?2, ?3, ?4, ?5)")?;
            for s in samples.iter().filter(|s| s.value.is_finite()) {
                insert.execute(params![id, s.at_s, s.source, s.metric, s.value])?;
            }
            let mut insert = transaction.prepare("INSERT INTO artifacts VALUES (?1, ?2, ?3, ?4)")?;
            for (name, content) in artifacts {
                insert.execute(params![point.run, point.turn, name, content])?;
            }
        }
        transaction.commit()?;
        Ok(id)
    }

    /// All runs, oldest first.
    pub fn runs(&self) -> anyhow::Result<Vec<RunRecord>> {
        let mut query = self.db.prepare("SELECT record, state, ended FROM runs ORDER BY started, id")?;
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mut out = Vec::new();
        for row in rows {
            let (record, state, ended): (String, String, Option<f64>) = row?;
            let mut run: RunRecord = serde_json::from_str(&record).context("a run's record")?;
            run.state = state;
            run.ended_unix_s = ended;
            out.push(run);
        }
        Ok(out)
    }

    /// The run whose id begins with this, or `last`, or `last-N`, or the newest of this name.
    pub fn find(&self, wanted: &str) -> anyhow::Result<RunRecord> {
        let mut runs = self.runs()?;
        ensure!(!runs.is_empty(), "{} has no run yet: shoal lab run FILE", self.path.display());
        let back = match wanted.strip_prefix("last") {
            Some("") => Some(0),
            Some(n) => n.strip_prefix('-').and_then(|n| n.parse::<usize>().ok()),
            None => None,
        };
        if let Some(back) = back {
            ensure!(back < runs.len(), "{wanted}: there are only {} runs", runs.len());
            return Ok(runs.swap_remove(runs.len() - 1 - back));
        }
        let by_id: Vec<usize> = (0..runs.len()).filter(|n| runs[*n].id.starts_with(wanted)).collect();
        let by_name = runs.iter().rposition(|run| run.name == wanted);
        match (by_id.as_slice(), by_name) {
            (&[one], _) => Ok(runs.swap_remove(one)),
            ([], Some(one)) => Ok(runs.swap_remove(one)),
            ([], None) => bail!("there is no run {wanted}; shoal lab list shows them"),
            (many, _) => bail!("{wanted} is the beginning of {} runs: give more of it", many.len()),
        }
    }

    pub fn points(&self, run: &str) -> anyhow::Result<Vec<PointRecord>> {
        let mut query = self.db.prepare("SELECT id, record FROM points WHERE run = ?1 ORDER BY turn")?;
        let rows = query.query_map([run], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
        rows.map(|row| {
            let (id, record) = row?;
            let mut point: PointRecord = serde_json::from_str(&record).context("a point's record")?;
            point.id = id;
            Ok(point)
        })
        .collect()
    }

    pub fn samples(&self, point: i64) -> anyhow::Result<Vec<Sample>> {
        let mut query = self
            .db
            .prepare("SELECT at_s, source, metric, value FROM samples WHERE point = ?1 ORDER BY rowid")?;
        let rows = query.query_map([point], |row| {
            Ok(Sample { at_s: row.get(0)?, source: row.get(1)?, metric: row.get(2)?, value: row.get(3)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub fn artifacts(&self, run: &str) -> anyhow::Result<Vec<(Option<u32>, String, Vec<u8>)>> {
        let mut query =
            self.db.prepare("SELECT turn, name, content FROM artifacts WHERE run = ?1 ORDER BY rowid")?;
        let rows = query.query_map([run], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Copy runs into another file, made when it is not there. Runs that it has are left as they are.
    pub fn export(&self, runs: &[String], to: &Path) -> anyhow::Result<usize> {
        let mut target = Results::open_file(to)?;
        let mut copied = 0;
        for id in runs {
            let there: Option<i64> =
                target.db.query_row("SELECT 1 FROM runs WHERE id = ?1", [id], |row| row.get(0)).optional()?;
            if there.is_none() {
                self.copy(id, &mut target).with_context(|| format!("copying run {id}"))?;
                copied += 1;
            }
        }
        Ok(copied)
    }

    fn copy(&self, id: &str, target: &mut Results) -> anyhow::Result<()> {
        let run = self.find(id)?;
        let artifacts = self.artifacts(&run.id)?;
        target.begin(&run)?;
        for point in self.points(&run.id)? {
            let own = artifacts.iter().filter(|(turn, ..)| *turn == Some(point.turn));
            let own: Vec<(String, Vec<u8>)> =
                own.map(|(_, name, content)| (name.clone(), content.clone())).collect();
            target.add_point(&point, &self.samples(point.id)?, &own)?;
        }
        target.end(&run.id, &run.state, run.ended_unix_s.unwrap_or(run.started_unix_s))
    }

    /// Runs that were never ended (their process was killed) are called interrupted.
    pub fn settle(&self, is_alive: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        for run in self.runs()?.iter().filter(|run| run.state == "running" && !is_alive(&run.host["pid"])) {
            self.end(&run.id, "interrupted", run.started_unix_s)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{ClusterSpec, Spec};

    fn run(id: &str) -> RunRecord {
        RunRecord {
            id: id.into(),
            name: "x".into(),
            started_unix_s: 1.0,
            ended_unix_s: None,
            state: "running".into(),
            file: "a: b".into(),
            notes: vec![],
            host: Value::Null,
        }
    }

    fn point(run: &str, turn: u32) -> PointRecord {
        PointRecord {
            id: 0,
            run: run.into(),
            turn,
            iteration: 0,
            cluster: ClusterSpec::existing(),
            spec: Spec::default(),
            measured: None,
            error: None,
            flags: vec![],
            verdict: None,
            versions: Value::Null,
        }
    }

    /// A folder of the test's own, gone at its end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("shoal-lab-{name}-{}", std::process::id()));
            drop(std::fs::remove_dir_all(&path));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn finished_run_is_immutable() {
        let folder = Folder::new("immutable");
        let mut results = Results::open(&folder.0).unwrap();
        results.begin(&run("aa1")).unwrap();
        let sample = Sample { at_s: 0.5, source: "osd.0".into(), metric: "cpu".into(), value: 0.25 };
        let id = results.add_point(&point("aa1", 0), std::slice::from_ref(&sample), &[]).unwrap();
        assert!(results.add_point(&point("aa1", 0), &[], &[]).is_err(), "a turn happens once");
        assert!(results.add_point(&point("zz", 0), &[], &[]).is_err(), "a point belongs to a run");
        results.end("aa1", "complete", 2.0).unwrap();
        assert!(results.end("aa1", "failed", 3.0).is_err());
        assert!(results.db.execute("UPDATE points SET turn = 9", []).is_err());
        assert!(results.db.execute("UPDATE samples SET value = 9", []).is_err());
        assert_eq!(results.samples(id).unwrap(), [sample]);
        let found = results.find("aa").unwrap();
        assert_eq!((found.state.as_str(), found.ended_unix_s), ("complete", Some(2.0)));
    }

    #[test]
    fn runs_are_found_by_id_name_and_age() {
        let folder = Folder::new("find");
        let results = Results::open(&folder.0).unwrap();
        assert!(results.find("last").unwrap_err().to_string().contains("no run yet"));
        results.begin(&run("aa1")).unwrap();
        results.begin(&RunRecord { started_unix_s: 2.0, ..run("aa2") }).unwrap();
        assert_eq!(results.find("last").unwrap().id, "aa2");
        assert_eq!(results.find("last-1").unwrap().id, "aa1");
        assert_eq!(results.find("x").unwrap().id, "aa2", "the newest of that name");
        assert!(results.find("aa").unwrap_err().to_string().contains("2 runs"));
        assert!(results.find("last-2").is_err() && results.find("b").is_err());
        results.settle(|_| false).unwrap();
        assert!(results.runs().unwrap().iter().all(|run| run.state == "interrupted"));
    }

    #[test]
    fn exported_run_is_imported_whole() {
        let folder = Folder::new("travel");
        let mut results = Results::open(&folder.0).unwrap();
        results.begin(&run("aa1")).unwrap();
        let sample = Sample { at_s: 0.5, source: "host".into(), metric: "idle".into(), value: 0.5 };
        results.add_point(&point("aa1", 3), &[sample], &[("out.txt".into(), b"raw".to_vec())]).unwrap();
        results.end("aa1", "complete", 2.0).unwrap();
        let to = folder.0.join("travelled.sqlite");
        assert_eq!(results.export(&["aa1".into()], &to).unwrap(), 1);
        assert_eq!(results.export(&["aa1".into()], &to).unwrap(), 0, "what is there stays");
        let other = Results::open_file(&to).unwrap();
        assert_eq!(other.runs().unwrap(), results.runs().unwrap());
        let (here, there) = (results.points("aa1").unwrap(), other.points("aa1").unwrap());
        assert_eq!(here, there);
        assert_eq!(results.samples(here[0].id).unwrap(), other.samples(there[0].id).unwrap());
        assert_eq!(other.artifacts("aa1").unwrap(), [(Some(3), "out.txt".to_owned(), b"raw".to_vec())]);
    }

    #[test]
    fn foreign_database_is_refused() {
        let folder = Folder::new("refuse");
        std::fs::write(
            folder.0.join(FILE),
            "no database at all, but long enough to be read as one.\n".repeat(80),
        )
        .unwrap();
        assert!(Results::open(&folder.0).is_err());
        let other = folder.0.join("other.sqlite");
        Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        assert!(Results::open_file(&other).err().unwrap().to_string().contains("another program"));
    }
}
