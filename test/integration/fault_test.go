package integration_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fault"
)

// toldWithin is how long the operator may take, after a fault or what asks for the update into it, to tell its exact
// cause, and to complete the update once the fault is over. slower is what a busy machine gets beside it.
const (
	toldWithin = 30 * time.Second
	slower     = 30 * time.Second
)

// troubled is a cluster that things befall, one after the other. Everything about releases is the tiny platform's.
type troubled struct {
	*life
	// web is the registry as the operator reaches it.
	web *fault.Proxy
	// files are those of a version, if they are not the tiny platform's.
	files func(version string) fs.FS
	patch int
	// far is the second replica.
	far *process
}

// newTroubled installs 4.2.0 on a cluster of its own; start runs the operator once it is prepared.
func newTroubled(t *testing.T, start func(*troubled), actors ...string) *troubled {
	t.Helper()
	f := &troubled{life: &life{platform: newPlatform(t), book: t, tiny: newTiny(t)}}
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

// through names an image as it is reached at another host, and signs it under that name.
func (f *troubled) through(host string, img release.Image) release.Image {
	f.t.Helper()
	img.Pullspec = host + strings.TrimPrefix(img.Pullspec, f.registry.Host())
	_, err := f.signer.WriteSignature(f.store(), img)
	require.NoError(f.t, err)
	return img
}

// chapter runs the next fault as a test of its own, on the cluster as the one before left it.
func (f *troubled) chapter(name string, run func()) {
	passed := f.book.Run(name, func(t *testing.T) {
		f.t = t
		defer func() { f.t = f.book }()
		run()
	})
	require.True(f.book, passed, "the faults after this one build on it")
}

// next makes the next release and pushes it.
func (f *troubled) next() (version string, img release.Image) {
	f.t.Helper()
	f.patch++
	version = fmt.Sprintf("4.2.%d", f.patch)
	return version, f.through(f.web.Address(), f.push(f.files(version), version, false))
}

// ordeal is one update with a fault in it.
type ordeal struct {
	f       *troubled
	name    string
	version string
	begun   time.Time
	told    string
	result  time.Duration
}

// begin notes when the fault, or the update into it, began.
func (f *troubled) begin(name, version string) *ordeal {
	return &ordeal{f: f, name: name, version: version, begun: time.Now(), told: "nothing to tell"}
}

// tells waits until a condition tells the cause in all of these words.
func (o *ordeal) tells(kind configv1.ClusterStatusConditionType, words ...string) string {
	o.f.t.Helper()
	cv := o.f.await(fmt.Sprintf("%s to tell %q", kind, words), toldWithin+slower, func(cv *configv1.ClusterVersion) bool {
		message := condition(cv, kind)
		for _, word := range words {
			if !strings.Contains(message, word) {
				return false
			}
		}
		return true
	})
	o.told = fmt.Sprintf("cause told after %.1f s", time.Since(o.begun).Seconds())
	o.f.t.Logf("%s: %s", o.name, condition(cv, kind))
	return condition(cv, kind)
}

// over is called when the fault ends, and waits for the update to complete. Nothing may have been written twice.
func (o *ordeal) over(since time.Time) {
	o.f.t.Helper()
	o.f.await(o.version+" to complete", toldWithin+slower, at(o.version))
	o.result = time.Since(since)
	twice := o.f.writtenTwice(o.version, o.begun)
	assert.Zero(o.f.t, twice, "objects that were changed twice for one release")
	o.f.t.Logf("fault: %s: %s, done after %.1f s, %d writes twice", o.name, o.told, o.result.Seconds(), twice)
}

// writtenTwice counts the objects of a release that the operator changed more than once since a moment, as TestKill does.
func (f *troubled) writtenTwice(version string, begin time.Time) int {
	f.t.Helper()
	dir := f.t.TempDir()
	require.NoError(f.t, os.CopyFS(dir, f.files(version)))
	g := f.graphOf(dir, release.Updating)
	all, err := env.Audit(f.env.AuditLog)
	require.NoError(f.t, err)
	counts := map[object]int{}
	for _, e := range g.writesOf(operatorAgent, env.Changes(all)) {
		if o := objectOf(e); e.Received.After(begin) && o.resource != "secrets" && !apply.Injected(g.objects[o].Manifest) {
			counts[o]++
		}
	}
	require.NotEmpty(f.t, counts, "the audit log tells of the update")
	twice := 0
	for o, n := range counts {
		if n > 1 {
			f.t.Logf("%v was changed %d times", o, n)
			twice++
		}
	}
	return twice
}

// kept is an operator that is started again whenever it ends, as the kubelet does with a container: at once, then after
// ten seconds, and after twice as long each time.
type kept struct {
	mu      sync.Mutex
	current *process
	starts  int
	// stop ends the operator for good.
	stop func()
}

// times is how often the operator was started.
func (k *kept) times() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.starts
}

// lasting is the platform for processes that outlive a chapter.
func (f *troubled) lasting() *platform {
	p := *f.platform
	p.t = f.book
	return &p
}

// keep runs an operator until the test ends.
func (f *troubled) keep(start func() *process) *kept {
	k := &kept{current: start(), starts: 1}
	done := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		for pause := time.Duration(0); ; {
			k.mu.Lock()
			current := k.current
			k.mu.Unlock()
			select {
			case <-done:
				return
			case <-current.exited:
			}
			select {
			case <-done:
				return
			case <-time.After(pause): // the kubelet's patience
			}
			pause = max(10*time.Second, 2*pause)
			k.mu.Lock()
			k.current = start()
			k.starts++
			k.mu.Unlock()
		}
	}()
	k.stop = sync.OnceFunc(func() {
		close(done)
		<-over
		k.current.kill()
	})
	f.book.Cleanup(k.stop)
	return k
}

// withFile puts one more file into releases.
func withFile(files func(string) fs.FS, name string, content func(version string) []byte) func(string) fs.FS {
	return func(version string) fs.FS {
		out := fstest.MapFS{}
		maps.Copy(out, files(version).(fstest.MapFS))
		out["release-manifests/"+name] = &fstest.MapFile{Data: content(version)}
		return out
	}
}
