// The rules that decide bits, as a number.
//
// EVERY COMMIT THAT CHANGES BITS RAISES IT: the same options, data, seed, ranks, instruction set
// and library then give other losses or parameters than before. It is part of a run's numerics: a
// resume under other rules is refused unless
// --accept-change rules, so that no run becomes a mixture of two without a word.
//
//   1  until November 2026; checkpoints and receipts without the number
//   2  Adam's moments and corrections come from one rounding of beta; a step follows the mean over
//   all its targets 3  products, attention, the classifier and norms are cut for up to 64 threads
#pragma once

namespace sg::dist {
inline constexpr int numerics_rules = 3;
}  // namespace sg::dist
