package actor

import (
	"fmt"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReportsFollowTheOptions plays an operator's progress through time, with one line per report.
func TestReportsFollowTheOptions(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options Options
		want    []string
	}{
		{"reports at once without a delay", Options{}, []string{"0s available=True progressing=False degraded=False version=2"}},
		{"reports after its delay", Options{Delay: 2 * time.Second}, []string{
			"0s available=False progressing=True degraded=False version=",
			"2s available=True progressing=False degraded=False version=2",
		}},
		{"has a separate delay if it is slow", Options{Delay: time.Second, Slow: map[string]time.Duration{"dns": time.Minute}}, []string{
			"0s available=False progressing=True degraded=False version=",
			"1m0s available=True progressing=False degraded=False version=2",
		}},
		{"fails permanently", Options{Delay: time.Second, Fail: []string{"dns"}}, []string{
			"0s available=False progressing=True degraded=False version=",
			"1s available=False progressing=True degraded=True version=",
		}},
		{"fails at one version", Options{Fail: []string{"dns@2"}}, []string{"0s available=False progressing=True degraded=True version="}},
		{"reports other versions", Options{Fail: []string{"dns@3"}}, []string{"0s available=True progressing=False degraded=False version=2"}},
		{"flaps as often as configured", Options{Flap: map[string]int{"dns": 2}, FlapEvery: time.Second}, []string{
			"0s available=True progressing=False degraded=False version=2",
			"1s available=False progressing=False degraded=False version=2",
			"2s available=True progressing=False degraded=False version=2",
			"3s available=False progressing=False degraded=False version=2",
			"4s available=True progressing=False degraded=False version=2",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			p := &progress{version: "2", since: start, flaps: 2 * tt.options.Flap["dns"]}
			reported := []configv1.OperandVersion{{Name: "operator", Version: "2"}}
			var got []string
			for now := start; len(got) < 10; {
				pic, again := tt.options.picture(clusterOperator("dns"), reported, p, now)
				version := ""
				if pic.versions != nil {
					version = pic.versions[0].Version
				}
				got = append(got, fmt.Sprintf("%v available=%s progressing=%s degraded=%s version=%s",
					now.Sub(start), pic.available.Status, pic.progressing.Status, pic.degraded.Status, version))
				if again == 0 {
					break
				}
				repeated, _ := tt.options.picture(clusterOperator("dns"), reported, p, now.Add(again/2))
				assert.Equal(t, pic, repeated, "an event in between changes nothing")
				now = now.Add(again)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestJitterFollowsTheSeed(t *testing.T) {
	o := Options{Delay: time.Second, Jitter: 0.5, Seed: 7}
	seen := map[time.Duration]bool{}
	for i := range 100 {
		delay := o.delay("dns", fmt.Sprint(i))
		assert.Equal(t, delay, o.delay("dns", fmt.Sprint(i)), "the same seed gives the same delay")
		assert.True(t, delay >= time.Second/2 && delay < 3*time.Second/2, "%v", delay)
		seen[delay] = true
	}
	assert.Greater(t, len(seen), 90)
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	require.NoError(t, Options{}.Validate())
	for _, o := range []Options{
		{Jitter: 2},
		{Slow: map[string]time.Duration{"a": -1}},
		{Flap: map[string]int{"a": 1}, Fail: []string{"a"}},
		{Follow: []string{"a"}, Ignore: []string{"a"}},
	} {
		require.Error(t, o.Validate(), "%+v", o)
	}
	flaps, err := ParseFlaps([]string{"a", "b=1"})
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"a": 3, "b": 1}, flaps)
	_, err = ParseFlaps([]string{"a=x"})
	assert.ErrorContains(t, err, `"a=x"`)
}
