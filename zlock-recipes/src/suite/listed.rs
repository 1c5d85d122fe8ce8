//! Checks that every case is in the list, because an unlisted case would silently never run.

#[test]
fn every_case_is_in_the_list() {
    let list = include_str!("macros.rs");
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/src/suite/cases");
    for file in std::fs::read_dir(cases).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for case in
            text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split(['<', '(']).next())
        {
            let is_listed = list.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == case);
            assert!(is_listed, "{}: {case} is in no group", path.display());
        }
    }
}
