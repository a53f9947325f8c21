//go:build !race

package image_test

const memoryFactor = 1
