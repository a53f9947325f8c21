// Package switches reads how a program of the example platform is told to misbehave. It takes the entries of a
// ConfigMap, or those of a manifest, and returns what they mean for one program; acting on it is left to the program.
package switches

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ConfigMap is the name of the ConfigMap that holds the switches of all programs in its namespace. No release brings
// it: whoever wants trouble creates it, and deletes it to be rid of it.
const ConfigMap = "example-switches"

// Set is what the switches of one program say. The zero value is a program that behaves.
type Set struct {
	// Slow is how long an operator keeps a version to itself that all its operands have reached, and how long other
	// programs take from their start to be ready.
	Slow time.Duration
	// Degraded, Unavailable and NotUpgradeable are conditions that an operator reports.
	Degraded, Unavailable, NotUpgradeable bool
	// NotReady fails the readiness probe.
	NotReady bool
	// CrashLoop ends the program with an error, now and after each start.
	CrashLoop bool
}

// Read returns the switches of one program. Keys are the names of Set's fields, in any case. A bare key is meant for
// the operators in the namespace; WORKLOAD.KEY is meant for the pods of that workload, which is empty for an operator.
// A value is true, false or a duration; followed by @VERSION it is meant for programs of that version alone.
func Read(entries map[string]string, workload, version string) (Set, error) {
	var set Set
	var errs []error
	for _, entry := range slices.Sorted(maps.Keys(entries)) {
		key := entry
		if dot := strings.LastIndexByte(entry, '.'); dot >= 0 {
			if entry[:dot] != workload {
				continue
			}
			key = entry[dot+1:]
		} else if workload != "" {
			continue
		}
		value, only, restricted := strings.Cut(entries[entry], "@")
		target, err := set.field(key)
		if err == nil && restricted && only != version {
			continue
		}
		if err == nil {
			err = target(strings.TrimSpace(value))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("switch %q: %w", entry, err))
		}
	}
	return set, errors.Join(errs...)
}

// field returns what sets the field of a key.
func (s *Set) field(key string) (func(string) error, error) {
	flag := func(to *bool) func(string) error {
		return func(text string) error {
			on, err := strconv.ParseBool(text)
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", text)
			}
			*to = on
			return nil
		}
	}
	switch strings.ToLower(key) {
	case "slow":
		return func(text string) error {
			slow, err := time.ParseDuration(text)
			if err != nil || slow < 0 {
				return fmt.Errorf("%q is no duration, such as 30s", text)
			}
			s.Slow = slow
			return nil
		}, nil
	case "degraded":
		return flag(&s.Degraded), nil
	case "unavailable":
		return flag(&s.Unavailable), nil
	case "notupgradeable":
		return flag(&s.NotUpgradeable), nil
	case "notready":
		return flag(&s.NotReady), nil
	case "crashloop":
		return flag(&s.CrashLoop), nil
	}
	return nil, errors.New("no such switch: use slow, degraded, unavailable, notUpgradeable, notReady or crashLoop")
}

// Merge returns the entries of a manifest with those of the ConfigMap, which count more.
func Merge(manifest, live map[string]string) map[string]string {
	merged := make(map[string]string, len(manifest)+len(live))
	maps.Copy(merged, manifest)
	maps.Copy(merged, live)
	return merged
}
