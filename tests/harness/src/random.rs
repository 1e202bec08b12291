//! Repeatable randomness, so that the seed printed by a failing test reproduces it.

/// A small generator (splitmix64): good enough to shuffle a schedule, and the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator that `seed` stands for.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in `LEASEHOLD_SEED`, or one taken from the time. It is printed, because the runner
    /// shows a test's output only when the test fails, and that is when somebody needs it.
    #[allow(clippy::print_stderr)]
    pub fn seed_from_environment() -> u64 {
        let seed = std::env::var("LEASEHOLD_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                now.map_or(1, |since| since.as_nanos() as u64)
            });
        eprintln!("reproduce with LEASEHOLD_SEED={seed}");
        seed
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True in `percent` of 100 calls.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
