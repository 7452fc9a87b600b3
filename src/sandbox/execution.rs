//! What calls into a sandbox are held to: what it asks for, within its class. Pure.

use super::Refusal;
use crate::api::{Execution, ExecutionBounds, ExecutionStatus, Quantity, Reason};

/// Settles a sandbox's wishes within its class. What it asks for is what its calls get and the most that they may ask for; where
/// it asks for nothing, calls get the class's default and may ask for the class's most.
///
/// # Errors
/// What exceeds the class, or can't be read.
pub(super) fn settle(asked: &Execution, class: &ExecutionBounds) -> Result<ExecutionStatus, Refusal> {
    let (timeout, max_timeout) = match asked.timeout {
        None => (class.timeout.default, class.timeout.max),
        Some(asked) if asked.duration().is_zero() => {
            return Err(invalid("timeout", "0s: no call could run; ask for more"));
        }
        Some(asked) if asked > class.timeout.max => {
            return Err(exceeds("timeout", asked, class.timeout.max));
        }
        Some(asked) => (asked, asked),
    };
    let (output_bytes, max_output_bytes) = output(asked.max_output_bytes.as_ref(), class)?;
    let max_concurrent = asked.max_concurrent.unwrap_or(class.max_concurrent.default);
    if max_concurrent == 0 {
        return Err(invalid("maxConcurrent", "0: no call could run; ask for more"));
    }
    if max_concurrent > class.max_concurrent.max {
        return Err(exceeds("maxConcurrent", max_concurrent, class.max_concurrent.max));
    }
    Ok(ExecutionStatus { timeout, max_timeout, output_bytes, max_output_bytes, max_concurrent })
}

fn output(asked: Option<&Quantity>, class: &ExecutionBounds) -> Result<(Quantity, Quantity), Refusal> {
    let bounds = &class.max_output_bytes;
    let read = |quantity: &Quantity, whose: &str| {
        quantity.units().map_err(|why| {
            let message = format!("{whose}: {why}");
            Refusal::accepted(Reason::InvalidSpec, message)
        })
    };
    let most = read(&bounds.max, "the class's spec.execution.maxOutputBytes.max")?;
    let Some(asked) = asked else {
        read(&bounds.default, "the class's spec.execution.maxOutputBytes.default")?;
        return Ok((bounds.default.clone(), bounds.max.clone()));
    };
    if read(asked, "spec.execution.maxOutputBytes")? > most {
        return Err(exceeds("maxOutputBytes", asked, &bounds.max));
    }
    Ok((asked.clone(), asked.clone()))
}

fn invalid(field: &str, why: &str) -> Refusal {
    Refusal::accepted(Reason::InvalidSpec, format!("spec.execution.{field} is {why}"))
}

fn exceeds(field: &str, asked: impl std::fmt::Display, most: impl std::fmt::Display) -> Refusal {
    let message = format!("spec.execution.{field} is {asked}, the class allows at most {most}");
    Refusal::accepted(Reason::ExceedsClass, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execution(timeout: Option<&str>, output: Option<&str>, concurrent: Option<u16>) -> Execution {
        Execution {
            timeout: timeout.map(|text| text.parse().unwrap()),
            max_output_bytes: output.map(Quantity::new),
            max_concurrent: concurrent,
        }
    }

    fn holds(asked: &Execution) -> (String, String, String, String, u16) {
        let held = settle(asked, &ExecutionBounds::default()).unwrap();
        let ExecutionStatus { timeout, max_timeout, output_bytes, max_output_bytes, max_concurrent } = held;
        let (output, most) = (output_bytes.to_string(), max_output_bytes.to_string());
        (timeout.to_string(), max_timeout.to_string(), output, most, max_concurrent)
    }

    #[test]
    fn who_asks_for_nothing_gets_the_default_and_may_ask_for_the_most() {
        let class = ("30s".into(), "10m".into(), "1Mi".into(), "64Mi".into(), 8);
        assert_eq!(holds(&Execution::default()), class);
    }

    #[test]
    fn what_is_asked_for_binds_every_call() {
        let asked = execution(Some("2m"), Some("2Mi"), Some(64));
        assert_eq!(holds(&asked), ("2m".into(), "2m".into(), "2Mi".into(), "2Mi".into(), 64));
    }

    #[test]
    fn what_exceeds_the_class_or_lets_nothing_run_names_field_value_and_bound() {
        for (asked, reason, words) in [
            (execution(Some("601s"), None, None), Reason::ExceedsClass, ["timeout", "10m1s", "10m"]),
            (execution(Some("0s"), None, None), Reason::InvalidSpec, ["timeout", "0s", "more"]),
            (execution(None, Some("65Mi"), None), Reason::ExceedsClass, ["maxOutputBytes", "65Mi", "64Mi"]),
            (
                execution(None, Some("much"), None),
                Reason::InvalidSpec,
                ["maxOutputBytes", "much", "quantity"],
            ),
            (execution(None, None, Some(65)), Reason::ExceedsClass, ["maxConcurrent", "65", "64"]),
            (execution(None, None, Some(0)), Reason::InvalidSpec, ["maxConcurrent", "0", "more"]),
        ] {
            let refusal = settle(&asked, &ExecutionBounds::default()).unwrap_err();
            assert_eq!(refusal.reason, reason);
            assert!(words.iter().all(|word| refusal.message.contains(word)), "{}", refusal.message);
        }
    }
}
