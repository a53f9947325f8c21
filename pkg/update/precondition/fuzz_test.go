package precondition_test

import (
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/precondition"
)

// FuzzRun requests arbitrary versions on a cluster with an arbitrary history. The checks must return the same result each time. A release
// older than the cluster's passes only if it is the cluster's previous release.
//
//threat:older-release-properly
//threat:versions-ranges-versions
func FuzzRun(f *testing.F) {
	for _, seed := range [][3]string{
		{"4.22.9", "4.22.8", "4.22.9,4.22.8"},
		{"4.22.9", "4.23.0", ">=1.30.0 <1.38.0,v1.36.3"},
		{"4.22.9", "4.22.8", "4.22.9,4.22.7"},
		{"4.23.0", "4.22.9", "4.23.0,4.22.9"},
		{"", "", ""},
		{"4.22.9", "4.22.9-rc.1+x", "4.22.9"},
		{"banana", "4.22.8", ",,"},
		{"1.0.0", "18446744073709551615.0.0", "1.0.0"},
		{"1.0.0", "18446744073709551616.0.0", "x"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, current, target, history string) {
		cv := &configv1.ClusterVersion{}
		cv.Status.Desired.Version = current
		for version := range strings.SplitSeq(history, ",") {
			cv.Status.History = append(cv.Status.History, configv1.UpdateHistory{Version: version})
		}
		in := precondition.Input{ClusterVersion: cv, Target: release.Release{Version: target}}
		in.Target.Kubernetes, in.Server.Version, _ = strings.Cut(history, ",")
		objections := precondition.Run(precondition.All(), in)
		require.Equal(t, objections, precondition.Run(precondition.All(), in))
		blocking := precondition.Blocking(objections)
		for _, o := range objections {
			require.NotEmpty(t, o.Reason)
			require.NotEmpty(t, o.Message)
		}
		to, err := semver.Parse(target)
		if err != nil {
			require.NotEmpty(t, blocking, "an invalid version is rejected")
			return
		}
		from, err := semver.Parse(current)
		if err != nil || to.GTE(from) || len(blocking) > 0 {
			return
		}
		assert.Equal(t, []uint64{from.Major, from.Minor}, []uint64{to.Major, to.Minor})
		assert.Contains(t, strings.Split(history, ","), target)
	})
}
