//! Do the pure crates stay pure? Each has `crates/pure.clippy.toml` as its clippy.toml, and clippy catches what that bans.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that read no clock, file or socket and start no thread.
const PURE: &[&str] = &[
    "block-store",
    "client",
    "codec",
    "command",
    "device",
    "images",
    "machine",
    "messenger",
    "mgr",
    "mon",
    "mon-client",
    "osd",
    "placement",
    "sim",
    "store",
    "wire",
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate has neighbours").to_owned()
}

fn bans() -> String {
    fs::read_to_string(crates().join("pure.clippy.toml")).expect("the bans are in crates/pure.clippy.toml")
}

#[test]
fn pure_crates_have_the_bans_and_no_others_do() {
    let bans = bans();
    for entry in
        fs::read_dir(crates()).expect("the folder of crates").map(|entry| entry.expect("an entry").path())
    {
        let Some(name) = entry.file_name().and_then(|name| name.to_str()).filter(|_| entry.is_dir()) else {
            continue;
        };
        let own = fs::read_to_string(entry.join("clippy.toml")).ok();
        let wanted = PURE.contains(&name).then(|| bans.clone());
        assert!(own == wanted, "crates/{name}/clippy.toml: link it to ../pure.clippy.toml, or remove it");
    }
}

/// One function a ban. Clippy must complain of each, by the name of the ban.
const IMPURE: &[(&str, &str)] = &[
    ("std::time::Instant::now", "let _ = std::time::Instant::now();"),
    ("std::time::SystemTime::now", "let _ = std::time::SystemTime::now();"),
    ("std::thread::spawn", "drop(std::thread::spawn(|| ()));"),
    ("std::thread::scope", "std::thread::scope(|_| ());"),
    ("std::thread::sleep", "std::thread::sleep(std::time::Duration::ZERO);"),
    ("std::thread::Builder::spawn", "drop(std::thread::Builder::new().spawn(|| ()));"),
    ("std::fs::canonicalize", r#"drop(std::fs::canonicalize("a"));"#),
    ("std::fs::copy", r#"drop(std::fs::copy("a", "b"));"#),
    ("std::fs::create_dir", r#"drop(std::fs::create_dir("a"));"#),
    ("std::fs::create_dir_all", r#"drop(std::fs::create_dir_all("a"));"#),
    ("std::fs::exists", r#"drop(std::fs::exists("a"));"#),
    ("std::fs::metadata", r#"drop(std::fs::metadata("a"));"#),
    ("std::fs::read", r#"drop(std::fs::read("a"));"#),
    ("std::fs::read_dir", r#"drop(std::fs::read_dir("a"));"#),
    ("std::fs::read_to_string", r#"drop(std::fs::read_to_string("a"));"#),
    ("std::fs::remove_dir", r#"drop(std::fs::remove_dir("a"));"#),
    ("std::fs::remove_dir_all", r#"drop(std::fs::remove_dir_all("a"));"#),
    ("std::fs::remove_file", r#"drop(std::fs::remove_file("a"));"#),
    ("std::fs::rename", r#"drop(std::fs::rename("a", "b"));"#),
    ("std::fs::write", r#"drop(std::fs::write("a", "b"));"#),
    ("std::collections::HashMap", "let _ = std::collections::HashMap::<u8, u8>::new();"),
    ("std::collections::HashSet", "let _ = std::collections::HashSet::<u8>::new();"),
    ("std::hash::RandomState", "let _ = std::hash::RandomState::new();"),
    ("std::time::Instant", "let _: Option<std::time::Instant> = None;"),
    ("std::time::SystemTime", "let _: Option<std::time::SystemTime> = None;"),
    ("std::fs::File", r#"drop(std::fs::File::open("a"));"#),
    ("std::fs::OpenOptions", "let _ = std::fs::OpenOptions::new();"),
    ("std::net::TcpListener", r#"drop(std::net::TcpListener::bind("a"));"#),
    ("std::net::TcpStream", r#"drop(std::net::TcpStream::connect("a"));"#),
    ("std::net::UdpSocket", r#"drop(std::net::UdpSocket::bind("a"));"#),
    ("std::os::unix::net::UnixDatagram", "drop(std::os::unix::net::UnixDatagram::unbound());"),
    ("std::os::unix::net::UnixListener", r#"drop(std::os::unix::net::UnixListener::bind("a"));"#),
    ("std::os::unix::net::UnixStream", r#"drop(std::os::unix::net::UnixStream::connect("a"));"#),
    ("std::process::Command", r#"let _ = std::process::Command::new("a");"#),
    ("std::thread::JoinHandle", "let _: Option<std::thread::JoinHandle<()>> = None;"),
];

#[test]
fn clippy_catches_each_ban() {
    let bans = bans();
    let banned: Vec<&str> =
        bans.lines().filter_map(|line| line.split_once("path = \"")?.1.split('"').next()).collect();
    let planted: Vec<&str> = IMPURE.iter().map(|(path, _)| *path).collect();
    assert_eq!(banned, planted, "each ban is planted once, in the order of the file");

    let folder = std::env::temp_dir().join(format!("shoal-purity-{}", std::process::id()));
    fs::create_dir_all(folder.join("src")).expect("the temporary folder can be written");
    let manifest = "[package]\nname = \"impure\"\nedition = \"2024\"\n[workspace]\n";
    let functions = IMPURE.iter().enumerate();
    let source: String = functions.map(|(n, (_, body))| format!("pub fn f{n}() {{ {body} }}\n")).collect();
    for (name, text) in [("Cargo.toml", manifest), ("clippy.toml", &bans), ("src/lib.rs", &source)] {
        fs::write(folder.join(name), text).expect("the temporary folder can be written");
    }
    let clippy = Command::new(env!("CARGO"))
        .args(["clippy", "--offline", "--quiet", "--message-format=short"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env_remove("CLIPPY_CONF_DIR")
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&clippy.stderr).into_owned();
    fs::remove_dir_all(&folder).expect("the temporary folder is ours");
    for (line, (path, body)) in IMPURE.iter().enumerate() {
        let place = format!("src/lib.rs:{}:", line + 1);
        let caught = said.lines().any(|l| l.starts_with(&place) && l.contains(&format!("`{path}`")));
        assert!(caught, "clippy does not complain of {path} in `{body}`; it said:\n{said}");
    }
}
