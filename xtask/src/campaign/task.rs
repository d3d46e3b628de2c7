//! The commands that a campaign runs over the files of a case, and the rules for judging them: must
//! the first fail, how long may each take, must times be positive. `input.rs` makes tasks and runs
//! them.

/// Commands to run over files; the first that is bad counts.
pub struct Task {
    /// Arguments of each command.
    pub commands: Vec<Vec<String>>,
    /// Whether the first of them must fail.
    pub must_fail: bool,
    /// Another program to run instead of the one under test, and its folder.
    pub program: Option<(std::path::PathBuf, Vec<(String, String)>)>,
    /// Seconds that each may take.
    pub seconds: u64,
    /// Whether the last command's times must be positive.
    pub checks_times: bool,
    /// Whether a failure says `error: `; a program of an exported network says it in its own words.
    pub says_error: bool,
}

impl Task {
    /// Commands that may succeed or fail, as words with spaces between them.
    pub fn of(commands: &[&str]) -> Task {
        let words = |c: &&str| c.split(' ').map(String::from).collect();
        Task {
            commands: commands.iter().map(words).collect(),
            must_fail: false,
            program: None,
            seconds: 60,
            checks_times: false,
            says_error: true,
        }
    }

    /// The same task, of which the first command must fail where `bad`.
    pub fn fails_if(mut self, bad: bool) -> Task {
        self.must_fail = bad;
        self
    }
}
