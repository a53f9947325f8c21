//go:build race

package image_test

// memoryFactor is how much more memory a test binary may take that looks for data races: it keeps a shadow of what it has.
const memoryFactor = 2
