package integration_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestUpdateSurvivesFaultsOfTheRegistry causes every fault between a registry and the folder with the pulled content.
func TestUpdateSurvivesFaultsOfTheRegistry(t *testing.T) {
	t.Parallel()
	disk, small := smallDisk(t, 8<<20)
	f := newFaultPlatform(t, func(f *faultPlatform) { f.cvo = f.operator(f.own.ByDigest(), "--payload-cache", disk) })
	for _, chapter := range []struct {
		name string
		run  func(*faultPlatform)
	}{
		{"registry answers 500", func(f *faultPlatform) { registryAnswers(f, "registry answers 500", fixture.Fault{Status: 500}, "500") }},
		{"registry answers 429", registryIsBusy},
		{"registry truncates", func(f *faultPlatform) {
			registryAnswers(f, "registry truncates", fixture.Fault{Match: fixture.MatchPath("/blobs/"), Truncate: 64}, "the connection broke at byte")
		}},
		{"registry sends a wrong digest", func(f *faultPlatform) {
			registryAnswers(f, "registry sends a wrong digest", fixture.Fault{Match: fixture.MatchPath("/(blobs|manifests)/"), Rewrite: spoiled}, "digest")
		}},
		{"registry sends 50 kB/s", registryIsSlow},
		{"pull secret expired", func(f *faultPlatform) { pullSecretExpired(f, disk) }},
		{"cache disk full", func(f *faultPlatform) { diskFull(f, disk, small) }},
		{"registry down for a minute", registryDown},
	} {
		f.chapter(chapter.name, func() { chapter.run(f) })
	}
}

// spoiled returns content that does not match its digest.
func spoiled(body []byte) []byte {
	changed := append([]byte{}, body...)
	changed[len(changed)/2] ^= 1
	return changed
}

// registryAnswers makes a registry misbehave until the operator reports it.
func registryAnswers(f *faultPlatform, name string, misbehavior fixture.Fault, words ...string) {
	version, img := f.next()
	heal := f.registry.AddFault(misbehavior)
	o := f.begin(name, version)
	f.update(configv1.Update{Image: img.ByDigest()})
	o.awaitMessage(api.ReleaseAccepted, append(words, "False|RetrievePayload|", img.ByDigest())...)
	got, _ := f.settings("a")
	assert.NotEqual(f.t, version, got, "nothing of the release is applied")
	heal()
	o.over(time.Now())
}

// registryIsBusy checks that the operator honors Retry-After and reports nothing before that time.
func registryIsBusy(f *faultPlatform) {
	const after = 4 * time.Second
	version, img := f.next()
	f.registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/(blobs|manifests)/"), Status: 429, RetryAfter: "4", Times: 1})
	f.registry.Reset()
	o := f.begin("registry answers 429", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.await(version+" to be accepted", patience, func(cv *configv1.ClusterVersion) bool {
		assert.False(f.t, says(api.ReleaseAccepted, "False|")(cv), condition(cv, api.ReleaseAccepted))
		return cv.Status.Desired.Version == version
	})
	assert.GreaterOrEqual(f.t, time.Since(o.startedAt), after, "the operator waits for the time in Retry-After")
	busy := 0
	for _, r := range f.registry.Requests() {
		if r.Status == http.StatusTooManyRequests {
			busy++
		}
	}
	assert.Equal(f.t, 1, busy)
	o.over(o.startedAt.Add(after))
}

// registryIsSlow checks that arriving bytes count as progress at any speed.
func registryIsSlow(f *faultPlatform) {
	const rate, size = 50_000, 600_000
	files := f.files
	f.files = withFile(files, "0000_90_noise_01.yaml", func(version string) []byte {
		noise := make([]byte, 0, size)
		random := rand.New(rand.NewPCG(1, uint64(len(version))))
		for len(noise) < size { // incompressible content
			noise = append(noise, "!#$%&()*+-./0123456789:<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ^_abcdefghijklmnopqrstuvwxyz{|}~"[random.IntN(84)])
		}
		object := map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]string{"noise": string(noise), "version": version},
			"metadata": map[string]any{"namespace": "tiny-a", "name": "noise", "annotations": map[string]string{
				"include.release.openshift.io/self-managed-high-availability": "true",
			}},
		}
		data, err := json.Marshal(object)
		require.NoError(f.t, err)
		return data
	})
	defer func() { f.files = files }()
	version, img := f.next()
	f.web.Limit(rate)
	defer f.web.Limit(0)
	o := f.begin("registry sends 50 kB/s", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.await(version+" to be accepted", 2*time.Minute, func(cv *configv1.ClusterVersion) bool {
		assert.False(f.t, says(api.ReleaseAccepted, "False|")(cv), condition(cv, api.ReleaseAccepted))
		return cv.Status.Desired.Version == version
	})
	assert.GreaterOrEqual(f.t, time.Since(o.startedAt), size*8/10/rate*time.Second, "the download was slow")
	o.over(o.startedAt)
}

// pullSecretExpired makes the registry require a password that the cluster does not have. Only the Secret is edited. The operator makes no
// timed attempts meanwhile, so the edit must trigger one.
func pullSecretExpired(f *faultPlatform, disk string) {
	usual := f.cvo
	usual.end(f.t)
	f.cvo = f.patient(f.own.ByDigest(), "--payload-cache", disk)
	defer func() {
		f.cvo.end(f.t)
		f.cvo = f.outliving().operator(f.own.ByDigest(), "--payload-cache", disk)
	}()
	var password atomic.Value
	password.Store("old")
	inner, err := url.Parse(f.registry.URL())
	require.NoError(f.t, err)
	proxy := httputil.NewSingleHostReverseProxy(inner)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, p, ok := r.BasicAuth(); !ok || p != password.Load() {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	f.book.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	if err := f.client.Create(f.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.ConfigNamespace}}); client.IgnoreAlreadyExists(err) != nil {
		require.NoError(f.t, err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.PullSecret}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths": {%q: {"username": "cluster", "password": "old"}}}`, host)},
	}
	require.NoError(f.t, f.client.Create(f.t.Context(), secret))

	version, img := f.next()
	img = f.through(host, release.Image{Pullspec: f.registry.Host() + strings.TrimPrefix(img.Pullspec, f.web.Address()), Digest: img.Digest})
	password.Store("new")
	o := f.begin("pull secret expired", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	o.awaitMessage(api.ReleaseAccepted, "False|RetrievePayload|", `it does not accept the credentials of "cluster"`, host, "in the pull secret")
	f.awaitTrigger(f.cvo, secret, `{"metadata":{"annotations":{"example.com/edit":"%d"}}}`)

	secret.Data[corev1.DockerConfigJsonKey] = fmt.Appendf(nil, `{"auths": {%q: {"username": "cluster", "password": "new"}}}`, host)
	require.NoError(f.t, f.client.Update(f.t.Context(), secret))
	edited := time.Now()
	f.await(version+" to be retrieved", patience, func(cv *configv1.ClusterVersion) bool { return cv.Status.Desired.Version == version })
	f.t.Logf("retrieved %v after the edit", time.Since(edited).Round(time.Millisecond))
	o.over(edited)
}

// diskFull leaves no space for the pulled content. The operator notices free space without a notification.
func diskFull(f *faultPlatform, disk string, small bool) {
	if !small {
		fixture.SkipUnlessCI(f.t, "mounting a small disk needs Linux and root: use sudo or unshare -rm")
	}
	ballast := filepath.Join(disk, "ballast")
	file, err := os.Create(ballast)
	require.NoError(f.t, err)
	for size := 64 << 10; size > 0; size /= 2 { // to the last byte
		for err = nil; err == nil; {
			_, err = file.Write(make([]byte, size))
		}
	}
	require.ErrorContains(f.t, err, "no space left on device")
	require.NoError(f.t, file.Close())
	version, img := f.next()
	o := f.begin("cache disk full", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	o.awaitMessage(api.ReleaseAccepted, "False|RetrievePayload|", disk, "no space left on device", "--payload-cache")
	require.NoError(f.t, os.Remove(ballast))
	o.over(time.Now())
}

// registryDown covers the longest pause between two attempts: the registry returns at the start of that pause.
func registryDown(f *faultPlatform) {
	version, img := f.next()
	f.web.Refuse()
	o := f.begin("registry down for a minute", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	o.awaitMessage(api.ReleaseAccepted, "False|RetrievePayload|", f.web.Address(), "connection refused")
	select {
	case <-time.After(time.Minute - time.Since(o.startedAt)): // the duration of the fault
	case <-f.t.Context().Done():
	}
	require.NoError(f.t, f.web.Accept())
	o.over(time.Now())
}
