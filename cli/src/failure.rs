//! How a command ends.

use std::fmt;

use spokeshave_model::settings::SettingError;

/// The end of a command that could be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// An answer was given.
    Answered,
    /// The answer is "no": lint found errors, a run did not settle, a budget cannot be evaluated.
    No,
}

impl ExitStatus {
    /// The process's exit status.
    pub const fn code(self) -> u8 {
        match self {
            Self::Answered => 0,
            Self::No => 1,
        }
    }

    /// `No` if `found`.
    pub const fn no_if(found: bool) -> Self {
        if found { Self::No } else { Self::Answered }
    }
}

/// The call or an input is unusable: exit status 2 and this one message, which names file, line, object, field
/// and the fix as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    pub file: Option<String>,
    /// 1-based.
    pub line: Option<u32>,
    /// `Kind/name` or `Kind/namespace/name`.
    pub object: Option<String>,
    pub field: Option<String>,
    pub problem: String,
    pub fix: Option<String>,
}

impl std::error::Error for Failure {}

impl Failure {
    pub fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), ..Self::default() }
    }

    #[must_use]
    pub fn file(mut self, file: impl Into<String>) -> Self {
        self.file = Some(file.into());
        self
    }

    #[must_use]
    pub fn line(mut self, line: u32) -> Self {
        self.line = Some(line);
        self
    }

    #[must_use]
    pub fn object(mut self, object: impl Into<String>) -> Self {
        self.object = Some(object.into());
        self
    }

    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

impl fmt::Display for Failure {
    /// `file:line: Kind/name: field: problem; fix`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: ")?,
            (Some(file), None) => write!(f, "{file}: ")?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        for part in [&self.object, &self.field].into_iter().flatten() {
            write!(f, "{part}: ")?;
        }
        f.write_str(&self.problem)?;
        match &self.fix {
            Some(fix) => write!(f, "; {fix}"),
            None => Ok(()),
        }
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::new(error.to_string())
    }
}
