package integration_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	applyinject "github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fault"
)

// faultPlatform is a cluster on which faults occur one after another. Its releases are the tiny platform's.
type faultPlatform struct {
	*testPlatform
	// web is the registry as the operator reaches it.
	web *fault.Proxy
	// files returns the files of a version; nil for the tiny platform's.
	files func(version string) fs.FS
	patch int
	// far is the second replica.
	far *process
}

// newFaultPlatform installs 4.2.0 on a separate cluster. start runs the operator when the cluster is prepared.
func newFaultPlatform(t *testing.T, start func(*faultPlatform), actors ...string) *faultPlatform {
	t.Helper()
	f := &faultPlatform{testPlatform: &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}}
	f.files = f.tiny.files
	require.NoError(t, corev1.AddToScheme(f.client.Scheme()))
	var err error
	f.web, err = fault.NewProxy(f.registry.Host())
	require.NoError(t, err)
	t.Cleanup(f.web.Close)
	f.own = f.through(f.web.Address(), f.release("4.2.0", nil))
	_, err = f.run("install", "--no-operator", "--release-image", f.own.ByDigest(), "--trust", f.trust)
	require.NoError(t, err)
	start(f)
	f.start("operators", actors...)
	f.await("4.2.0 to complete", 2*time.Minute, at("4.2.0"))
	return f
}

// through returns an image with another host name through which it is reached, and signs it under that name.
func (f *faultPlatform) through(host string, img release.Image) release.Image {
	f.t.Helper()
	img.Pullspec = host + strings.TrimPrefix(img.Pullspec, f.registry.Host())
	_, err := f.signer.WriteSignature(f.store(), img)
	require.NoError(f.t, err)
	return img
}

// chapter runs the next fault as a subtest on the cluster as the previous one left it.
func (f *faultPlatform) chapter(name string, run func()) {
	passed := f.book.Run(name, func(t *testing.T) {
		f.t = t
		defer func() { f.t = f.book }()
		run()
	})
	require.True(f.book, passed, "the next faults depend on this one")
}

// next creates and pushes the next release.
func (f *faultPlatform) next() (version string, img release.Image) {
	f.t.Helper()
	f.patch++
	version = fmt.Sprintf("4.2.%d", f.patch)
	return version, f.through(f.web.Address(), f.push(f.files(version), version, false))
}

// scenario is an update with a fault.
type scenario struct {
	f         *faultPlatform
	name      string
	version   string
	startedAt time.Time
	message   string
	result    time.Duration
}

// begin records the start of the fault, or of the update during it.
func (f *faultPlatform) begin(name, version string) *scenario {
	return &scenario{f: f, name: name, version: version, startedAt: time.Now(), message: "completed"}
}

// awaitMessage waits until the message of a condition contains all of these words.
func (o *scenario) awaitMessage(kind configv1.ClusterStatusConditionType, words ...string) string {
	o.f.t.Helper()
	cv := o.f.await(fmt.Sprintf("%s to report %q", kind, words), patience, func(cv *configv1.ClusterVersion) bool {
		message := condition(cv, kind)
		for _, word := range words {
			if !strings.Contains(message, word) {
				return false
			}
		}
		return true
	})
	o.message = fmt.Sprintf("cause reported after %.1f s", time.Since(o.startedAt).Seconds())
	o.f.t.Logf("%s: %s", o.name, condition(cv, kind))
	return condition(cv, kind)
}

// over waits for the update to complete after the end of the fault. No object may have been written twice.
func (o *scenario) over(since time.Time) {
	o.f.t.Helper()
	o.f.await(o.version+" to complete", patience, at(o.version))
	o.result = time.Since(since)
	twice := o.f.writtenTwice(o.version, o.startedAt)
	assert.Zero(o.f.t, twice, "no object is changed twice for one release")
	o.f.t.Logf("fault: %s: %s, done after %.1f s, %d objects written twice", o.name, o.message, o.result.Seconds(), twice)
}

// writtenTwice returns the number of release objects that the operator changed more than once since a time, as in
// TestKilledOperatorContinues.
func (f *faultPlatform) writtenTwice(version string, begin time.Time) int {
	f.t.Helper()
	dir := f.t.TempDir()
	require.NoError(f.t, os.CopyFS(dir, f.files(version)))
	g := f.graphOf(dir, release.Updating)
	all, err := f.env.Audit()
	require.NoError(f.t, err)
	counts := map[object]int{}
	for _, e := range g.writesOf(operatorAgent, env.Changes(all)) {
		if o := objectOf(e); e.Received.After(begin) && o.resource != "secrets" && !applyinject.Requested(g.objects[o].Manifest) {
			counts[o]++
		}
	}
	require.NotEmpty(f.t, counts, "the audit log has the update's writes")
	twice := 0
	for o, n := range counts {
		if n > 1 {
			f.t.Logf("%v was changed %d times", o, n)
			twice++
		}
	}
	return twice
}

// outliving returns the platform for processes that outlive a chapter.
func (f *faultPlatform) outliving() *platform {
	p := *f.platform
	p.t = f.book
	return &p
}

// withFile adds a file to releases.
func withFile(files func(string) fs.FS, name string, content func(version string) []byte) func(string) fs.FS {
	return func(version string) fs.FS {
		out := fstest.MapFS{}
		maps.Copy(out, files(version).(fstest.MapFS))
		out["release-manifests/"+name] = &fstest.MapFile{Data: content(version)}
		return out
	}
}
