//! Hours of the day in which a polite worker (`mod.rs`) may work, as the option `--hours 22-6`
//! gives them.

use std::fmt;
use std::str::FromStr;

/// A range of minutes of the day; it goes over midnight where the end is less than the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    from: u32,
    to: u32,
}

impl Hours {
    /// Whether a minute of the day lies in them.
    pub fn holds(self, minute: u32) -> bool {
        match self.from < self.to {
            true => (self.from..self.to).contains(&minute),
            false => minute >= self.from || minute < self.to,
        }
    }
}

impl FromStr for Hours {
    type Err = String;
    fn from_str(text: &str) -> Result<Hours, String> {
        let expected = "expected two different times of day, as 22-6 or 12:30-13:15";
        let minute = |part: &str| {
            let (hour, minute) = part.trim().split_once(':').unwrap_or((part.trim(), "0"));
            let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
            let is_time = hour < 24 && minute < 60 || (hour, minute) == (24, 0);
            is_time.then_some(hour * 60 + minute)
        };
        let (from, to) = text.split_once('-').ok_or(expected)?;
        match (minute(from), minute(to)) {
            (Some(from), Some(to)) if from != to => Ok(Hours { from, to }),
            _ => Err(expected.into()),
        }
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, to] = [self.from, self.to].map(|m| format!("{}:{:02}", m / 60, m % 60));
        write!(f, "{from}-{to}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_may_go_over_midnight() {
        let night: Hours = "22-6".parse().unwrap();
        assert_eq!(
            [0, 359, 360, 1319, 1320].map(|m| night.holds(m)),
            [true, true, false, false, true]
        );
        let noon: Hours = "12:30-13".parse().unwrap();
        assert_eq!([749, 750, 779, 780].map(|m| noon.holds(m)), [false, true, true, false]);
        assert_eq!(
            (night.to_string(), noon.to_string()),
            ("22:00-6:00".into(), "12:30-13:00".into())
        );
        for text in ["", "22", "22-22", "25-3", "1:60-2", "a-b", "-5"] {
            assert!(text.parse::<Hours>().is_err(), "{text}");
        }
    }
}
