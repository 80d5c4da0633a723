//! Do the documents still speak of what exists? Every relative link in a Markdown file leads to a file or folder.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

fn markdown_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder of the repository can be read") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            markdown_files(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// The targets of `[text](target)`, outside of code blocks.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            if let Some((target, _)) = line[at + 2..].split_once(')') {
                links.push(target.to_owned());
            }
        }
    }
    links
}

#[test]
fn every_relative_link_leads_somewhere() {
    let root = root();
    let mut files = Vec::new();
    markdown_files(&root, &mut files);
    assert!(files.iter().any(|file| file.ends_with("README.md")), "README.md is missing");
    let mut broken = Vec::new();
    let mut checked = 0;
    for file in &files {
        let text = std::fs::read_to_string(file).expect("a document can be read");
        for link in links(&text) {
            let target = link.split(['#', ' ']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            checked += 1;
            let from = file.parent().expect("a file is in a folder");
            if !from.join(target).exists() {
                broken.push(format!("{}: {link}", file.strip_prefix(&root).unwrap_or(file).display()));
            }
        }
    }
    assert!(checked > 0, "no link was found: the test looks in the wrong place");
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn links_are_found_outside_of_code_only() {
    let text = "see [a](x.md) and [b](y/z.rs#L3)\n```\n[c](no.md)\n```\n";
    assert_eq!(links(text), ["x.md", "y/z.rs#L3"]);
}
