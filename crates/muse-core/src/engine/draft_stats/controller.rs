//! Whether drafting pays for a request, by the measured rates of its steps with and without draft
//! tokens.

/// Steps with draft tokens before a decision; the slowest of them does not count.
const MIN_SAMPLES: u32 = 4;
/// Steps of a trial after a pause.
const TRIAL_SAMPLES: u32 = 2;
/// How much faster a trial must be to end the pauses.
pub(in crate::engine) const TRIAL_MARGIN: f64 = 1.15;
/// Steps of the first pause, and of the longest.
const PAUSE_STEPS: (u32, u32) = (16, 64);
/// Samples after which the earlier ones count half.
const HALVED_AFTER: u32 = 32;

/// Sums over the steps of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct RateSum {
    tokens: f64,
    seconds: f64,
    samples: u32,
    /// Tokens and seconds of the slowest sample.
    slowest: Option<(f64, f64)>,
    /// Whether the first sample, which is warm-up, was dropped.
    warm: bool,
}

impl RateSum {
    fn add(&mut self, tokens: f64, seconds: f64) {
        if !std::mem::replace(&mut self.warm, true) {
            return;
        }
        if self.samples == HALVED_AFTER {
            *self = Self {
                tokens: self.tokens / 2.0,
                seconds: self.seconds / 2.0,
                samples: HALVED_AFTER / 2,
                slowest: None,
                warm: true,
            };
        }
        self.tokens += tokens;
        self.seconds += seconds;
        self.samples += 1;
        if self.slowest.is_none_or(|(t, s)| tokens * s < t * seconds) {
            self.slowest = Some((tokens, seconds));
        }
    }

    /// Tokens per second; without the slowest sample if `trimmed`.
    fn rate(&self, trimmed: bool) -> Option<f64> {
        let (tokens, seconds) = self.slowest.filter(|_| trimmed).unwrap_or_default();
        (self.seconds > seconds).then(|| (self.tokens - tokens) / (self.seconds - seconds))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Drafting,
    Paused { left: u32 },
    Trial,
}

/// Decides for one request whether it drafts.
#[derive(Clone, Debug)]
pub(in crate::engine) struct DraftController {
    drafted: RateSum,
    plain: RateSum,
    state: State,
    next_pause: u32,
}

impl DraftController {
    pub(in crate::engine) fn new() -> Self {
        let none = RateSum::default();
        Self { drafted: none, plain: none, state: State::Drafting, next_pause: PAUSE_STEPS.0 }
    }

    /// Whether the coming step may carry draft tokens. To be called once per step: it counts the
    /// steps of a pause.
    pub(in crate::engine) fn allows(&mut self) -> bool {
        match &mut self.state {
            State::Paused { left: 0 } => {
                self.state = State::Trial;
                self.drafted = RateSum { warm: true, ..RateSum::default() };
                true
            }
            State::Paused { left } => {
                *left -= 1;
                false
            }
            State::Drafting | State::Trial => true,
        }
    }

    /// Whether draft tokens may be spent to find out whether they pay: after a pause, and when the
    /// request begins.
    pub(in crate::engine) fn may_try(&mut self) -> bool {
        if !self.drafted.warm {
            self.drafted.warm = true;
            self.state = State::Trial;
        }
        self.in_trial()
    }

    /// Whether a trial runs.
    pub(in crate::engine) fn in_trial(&self) -> bool {
        self.state == State::Trial
    }

    /// Stops drafting for some steps, for twice as many as the time before.
    pub(in crate::engine) fn pause(&mut self) {
        self.state = State::Paused { left: self.next_pause };
        self.next_pause = (2 * self.next_pause).min(PAUSE_STEPS.1);
    }

    /// Takes in a step without draft tokens.
    pub(in crate::engine) fn learn_plain(&mut self, tokens: f64, seconds: f64) {
        self.plain.add(tokens, seconds);
    }

    /// Takes in a step with draft tokens. `expected` is the rate assumed for steps without them
    /// while none was measured.
    pub(in crate::engine) fn learn_drafted(&mut self, tokens: f64, seconds: f64, expected: f64) {
        self.drafted.add(tokens, seconds);
        let plain = self.plain.rate(false).unwrap_or(expected);
        let (needed, margin) = match self.state {
            State::Trial => (TRIAL_SAMPLES, TRIAL_MARGIN),
            _ => (MIN_SAMPLES, 1.0),
        };
        let Some(drafted) = self.drafted.rate(self.state == State::Drafting) else { return };
        if self.drafted.samples < needed {
            // A trial that loses needs no second sample.
            if self.in_trial() && drafted < plain {
                self.pause();
            }
        } else if drafted < margin * plain {
            self.pause();
        } else if self.in_trial() {
            self.state = State::Drafting;
            self.next_pause = PAUSE_STEPS.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps until it stops drafting at a rate of `drafted` against 1, and the pauses after that.
    fn pauses(drafted: f64, steps: usize) -> (usize, Vec<usize>) {
        let mut controller = DraftController::new();
        let (mut first, mut pauses, mut pause) = (0, Vec::new(), 0);
        for _ in 0..steps {
            if controller.allows() {
                if pause > 0 {
                    pauses.push(std::mem::take(&mut pause));
                }
                first += usize::from(pauses.is_empty());
                controller.learn_drafted(drafted, 1.0, 1.0);
            } else {
                pause += 1;
                controller.learn_plain(1.0, 1.0);
            }
        }
        (first, pauses)
    }

    #[test]
    fn pauses_grow_while_drafting_does_not_pay() {
        assert_eq!(pauses(0.8, 250), (5, vec![16, 32, 64, 64, 64]));
    }

    #[test]
    fn drafting_that_pays_never_pauses() {
        assert_eq!(pauses(1.01, 200), (200, vec![]));
    }

    #[test]
    fn the_first_and_the_slowest_sample_do_not_decide() {
        let mut controller = DraftController::new();
        controller.learn_drafted(0.01, 1.0, 1.0);
        controller.learn_drafted(0.1, 1.0, 1.0);
        for _ in 0..20 {
            controller.learn_drafted(1.2, 1.0, 1.0);
            assert!(controller.allows());
        }
    }

    #[test]
    fn a_trial_after_a_pause_must_win_by_a_margin() {
        for (rate, wins) in [(1.1, false), (1.2, true)] {
            let mut controller = DraftController::new();
            controller.learn_plain(9.0, 1.0);
            controller.learn_plain(1.0, 1.0);
            controller.pause();
            while !controller.allows() {}
            (0..TRIAL_SAMPLES).for_each(|_| controller.learn_drafted(rate, 1.0, 5.0));
            assert_eq!(controller.state == State::Drafting, wins, "{rate}");
        }
    }
}
