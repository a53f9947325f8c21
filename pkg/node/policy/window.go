package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
)

const (
	// horizon is the number of days in which every window of a week occurs from its start to its end. One that does not last forever is closed once a
	// week.
	horizon = 14
	// always is the length of an interval that contains a week and a change of the clock, so it has no end.
	always = 8 * 24 * time.Hour
)

// window is a parsed api.UpdateWindow. The times are minutes of the day.
type window struct {
	days       []time.Weekday
	start, end int
	zone       *time.Location
}

// interval is one occurrence of windows that meet or overlap.
type interval struct{ start, end time.Time }

func (i interval) length() time.Duration { return i.end.Sub(i.start) }
func (i interval) isAlways() bool        { return i.length() >= always }

func parseWindow(w api.UpdateWindow) (window, error) {
	var parsed window
	for _, day := range w.Days {
		found := slices.IndexFunc(weekdays, func(d time.Weekday) bool { return d.String()[:3] == day })
		if found < 0 {
			return window{}, fmt.Errorf("days has %q: use Mon, Tue, Wed, Thu, Fri, Sat or Sun", day)
		}
		parsed.days = append(parsed.days, weekdays[found])
	}
	for _, field := range []struct {
		name, text string
		minutes    *int
	}{{"start", w.Start, &parsed.start}, {"end", w.End, &parsed.end}} {
		t, err := time.Parse("15:04", field.text)
		if err != nil {
			return window{}, fmt.Errorf("%s is %q: use a time such as 22:00", field.name, field.text)
		}
		*field.minutes = t.Hour()*60 + t.Minute()
	}
	var err error
	// LoadLocation also accepts "Local", which differs between machines.
	if parsed.zone, err = time.LoadLocation(w.TimeZone); err != nil || strings.EqualFold(w.TimeZone, "Local") {
		return window{}, fmt.Errorf("timeZone is %q: the time zone database here does not have it: use a name such as Europe/Prague", w.TimeZone)
	}
	return parsed, nil
}

var weekdays = []time.Weekday{time.Sunday, time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday, time.Saturday}

// on returns the window that starts on a day of its time zone. The clock decides when it ends: a night in which the clock is changed is longer or
// shorter.
func (w window) on(year int, month time.Month, day int) interval {
	end := w.end
	if end <= w.start {
		end += 24 * 60
	}
	return interval{w.clock(year, month, day, w.start), w.clock(year, month, day, end)}
}

// clock returns the time of a day at which the clock of the time zone shows the given minutes after midnight. If the clock skips them, it is the end
// of what is skipped.
func (w window) clock(year int, month time.Month, day, minutes int) time.Time {
	t := time.Date(year, month, day, 0, minutes, 0, 0, w.zone)
	if hour, minute, _ := t.Clock(); hour*60+minute == minutes%(24*60) {
		return t
	}
	before, after := t.ZoneBounds() // one of them is the change of the clock
	if after.IsZero() || !before.IsZero() && t.Sub(before) < after.Sub(t) {
		return before
	}
	return after
}

// intervals returns the windows that end after now and start within the horizon, in order. Windows that meet or overlap are one.
func intervals(windows []window, now time.Time) []interval {
	var all []interval
	for _, w := range windows {
		local := now.In(w.zone)
		for offset := -1; offset <= horizon; offset++ {
			day := time.Date(local.Year(), local.Month(), local.Day()+offset, 12, 0, 0, 0, w.zone)
			if len(w.days) > 0 && !slices.Contains(w.days, day.Weekday()) {
				continue
			}
			if i := w.on(day.Date()); i.end.After(now) && i.end.After(i.start) { // the clock may skip a whole window
				all = append(all, i)
			}
		}
	}
	sorted.By(all, func(a, b interval) int { return a.start.Compare(b.start) })
	var merged []interval
	for _, next := range all {
		last := len(merged) - 1
		switch {
		case last < 0 || next.start.After(merged[last].end):
			merged = append(merged, next)
		case next.end.After(merged[last].end):
			merged[last].end = next.end
		}
	}
	return merged
}

// find returns the earliest time at which a window has room for one node. ok is false if no window has: then longest is the length of the longest
// one.
func find(all []interval, need time.Duration, now time.Time) (start time.Time, longest time.Duration, ok bool) {
	for _, i := range all {
		begin := i.start
		if begin.Before(now) {
			begin = now
		}
		if i.isAlways() || i.end.Sub(begin) >= need {
			return begin, 0, true
		}
		longest = max(longest, i.length())
	}
	return time.Time{}, longest, false
}
