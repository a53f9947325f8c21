// Package property tests applying by a model: random pairs of releases, random edits by others before, between and
// after, a real API server. What an object must look like in the end is worked out from manifests and edits alone, by
// rules written down here a second time; nothing here comes from the packages under test but the engine that runs.
//
// It holds tests only. One seed is one history; a failing seed prints its history, made as short as it can be while
// still failing, and the command that runs it again.
package property
