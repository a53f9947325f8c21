package command

import (
	"os"
	"strconv"
)

// EnvTrue reports whether the value of an environment variable is true.
func EnvTrue(name string) bool {
	on, err := strconv.ParseBool(os.Getenv(name))
	return err == nil && on
}

// EnvOr returns an environment variable, or fallback if it is empty.
func EnvOr(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}
