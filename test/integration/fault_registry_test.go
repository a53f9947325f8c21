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

// TestFaultRegistry has everything go wrong that can between a registry and the folder that keeps what was pulled.
func TestFaultRegistry(t *testing.T) {
	t.Parallel()
	disk, small := smallDisk(t, 8<<20)
	f := newTroubled(t, func(f *troubled) { f.cvo = f.operator(f.own.ByDigest(), "--payload-cache", disk) })
	for _, chapter := range []struct {
		name string
		run  func(*troubled)
	}{
		{"registry answers 500", func(f *troubled) { registryAnswers(f, "registry answers 500", fixture.Fault{Status: 500}, "500") }},
		{"registry answers 429", registryIsBusy},
		{"registry truncates", func(f *troubled) {
			registryAnswers(f, "registry truncates", fixture.Fault{Match: fixture.MatchPath("/blobs/"), Truncate: 64}, "it broke off at byte")
		}},
		{"registry sends a wrong digest", func(f *troubled) {
			registryAnswers(f, "registry sends a wrong digest", fixture.Fault{Match: fixture.MatchPath("/(blobs|manifests)/"), Rewrite: spoiled}, "digest")
		}},
		{"registry sends 50 kB/s", registryIsSlow},
		{"pull secret expired", pullSecretExpired},
		{"cache disk full", func(f *troubled) { diskFull(f, disk, small) }},
		{"registry down for a minute", registryDown},
	} {
		f.chapter(chapter.name, func() { chapter.run(f) })
	}
}

// spoiled is content that is not what its digest says.
func spoiled(body []byte) []byte {
	changed := append([]byte{}, body...)
	changed[len(changed)/2] ^= 1
	return changed
}

// registryAnswers has a registry misbehave until that is told.
func registryAnswers(f *troubled, name string, misbehaviour fixture.Fault, words ...string) {
	version, img := f.next()
	heal := f.registry.AddFault(misbehaviour)
	o := f.begin(name, version)
	f.update(configv1.Update{Image: img.ByDigest()})
	o.tells(api.ReleaseAccepted, append(words, "False|RetrievePayload|", img.ByDigest())...)
	got, _ := f.settings("a")
	assert.NotEqual(f.t, version, got, "nothing of it is applied")
	heal()
	o.over(time.Now())
}

// registryIsBusy: whoever says when to come again is not asked before, and there is nothing to tell yet.
func registryIsBusy(f *troubled) {
	const after = 4 * time.Second
	version, img := f.next()
	f.registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/(blobs|manifests)/"), Status: 429, RetryAfter: "4", Times: 1})
	f.registry.Reset()
	o := f.begin("registry answers 429", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.await(version+" to be accepted", toldWithin+slower, func(cv *configv1.ClusterVersion) bool {
		assert.False(f.t, says(api.ReleaseAccepted, "False|")(cv), condition(cv, api.ReleaseAccepted))
		return cv.Status.Desired.Version == version
	})
	assert.GreaterOrEqual(f.t, time.Since(o.begun), after, "the time that the registry asked for")
	busy := 0
	for _, r := range f.registry.Requests() {
		if r.Status == http.StatusTooManyRequests {
			busy++
		}
	}
	assert.Equal(f.t, 1, busy)
	o.over(o.begun.Add(after))
}

// registryIsSlow: bytes that flow are progress, however slowly they do.
func registryIsSlow(f *troubled) {
	const rate, size = 50_000, 600_000
	files := f.files
	f.files = withFile(files, "0000_90_noise_01.yaml", func(version string) []byte {
		noise := make([]byte, 0, size)
		random := rand.New(rand.NewPCG(1, uint64(len(version))))
		for len(noise) < size { // what does not compress
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
	assert.GreaterOrEqual(f.t, time.Since(o.begun), size*8/10/rate*time.Second, "it was slow")
	o.over(o.begun)
}

// pullSecretExpired: the registry takes another password than the cluster has. Nothing but the Secret is edited.
func pullSecretExpired(f *troubled) {
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
	data, err := os.ReadFile(f.cvo.log)
	require.NoError(f.t, err)
	refusals := strings.Count(string(data), `"release not accepted"`)
	o := f.begin("pull secret expired", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	o.tells(api.ReleaseAccepted, "False|RetrievePayload|", `it does not accept the credentials of "cluster"`, host, "in the pull secret")
	// By now the operator has tried a few times, and would not by itself for a while.
	require.Eventually(f.t, func() bool {
		data, err := os.ReadFile(f.cvo.log)
		return err == nil && strings.Count(string(data), `"release not accepted"`) >= refusals+4
	}, time.Minute, 50*time.Millisecond)

	secret.Data[corev1.DockerConfigJsonKey] = fmt.Appendf(nil, `{"auths": {%q: {"username": "cluster", "password": "new"}}}`, host)
	require.NoError(f.t, f.client.Update(f.t.Context(), secret))
	edited := time.Now()
	f.await(version+" to be retrieved", toldWithin+slower, func(cv *configv1.ClusterVersion) bool { return cv.Status.Desired.Version == version })
	assert.Less(f.t, time.Since(edited), 10*time.Second, "the next attempt by the clock is sixteen seconds away")
	f.t.Logf("retrieved %v after the edit", time.Since(edited).Round(time.Millisecond))
	o.over(edited)
}

// diskFull: what was pulled cannot be kept. Whoever makes room need not say so.
func diskFull(f *troubled, disk string, small bool) {
	if !small {
		f.t.Skip("mounting a small disk takes Linux and root: sudo, or unshare -rm")
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
	o.tells(api.ReleaseAccepted, "False|RetrievePayload|", disk, "no space left on device", "--payload-cache")
	require.NoError(f.t, os.Remove(ballast))
	o.over(time.Now())
}

// registryDown is about the longest pause between two attempts: the registry is back when most of it is still to come.
func registryDown(f *troubled) {
	version, img := f.next()
	f.web.Refuse()
	o := f.begin("registry down for a minute", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	o.tells(api.ReleaseAccepted, "False|RetrievePayload|", f.web.Address(), "connection refused")
	select {
	case <-time.After(time.Minute - time.Since(o.begun)): // the fault itself
	case <-f.t.Context().Done():
	}
	require.NoError(f.t, f.web.Accept())
	o.over(time.Now())
}
