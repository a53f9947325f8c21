package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/image/layer"
	reach "github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// Limits for reading a hostile image.
const (
	hostileMemory = 256 << 20
	hostileTime   = 10 * time.Second
)

// readerEnv makes this test binary read one image and report the outcome.
const readerEnv = "CVO_TEST_READ_IMAGE"

// reading is the task of a reader process.
type reading struct {
	Image    release.Image
	Do       string // manifests, config, discard, attachments, attached or resolve
	CacheDir string
	Timeout  time.Duration
	Stall    time.Duration
}

// outcome is the result of a reader process.
type outcome struct {
	Error                                          string
	Integrity, Limit, NotFound, Stalled, OutOfTime bool
	Files                                          map[string]string
	Took                                           time.Duration
	// Memory is the process's peak memory in bytes, if the system reports it. CPU is the CPU time of this process only.
	Memory int64
	CPU    time.Duration
}

func readImage(ctx context.Context, work string) error {
	var job reading
	if err := json.Unmarshal([]byte(work), &job); err != nil {
		return err
	}
	if job.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, job.Timeout)
		defer cancel()
	}
	start := time.Now()
	files, err := job.run(ctx)
	o := outcome{Took: time.Since(start), Files: files, Memory: peakMemory()}
	if err != nil {
		o.Error = err.Error()
		for _, k := range []struct {
			is  *bool
			err error
		}{
			{&o.Integrity, failure.ErrIntegrity},
			{&o.Limit, failure.ErrLimit},
			{&o.NotFound, failure.ErrNotFound},
			{&o.Stalled, failure.ErrStalled},
			{&o.OutOfTime, context.DeadlineExceeded},
		} {
			*k.is = errors.Is(err, k.err)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}

func (job reading) run(ctx context.Context) (map[string]string, error) {
	r, err := image.New(image.Options{Access: reach.New(reach.Options{Stall: job.Stall, Backoff: time.Millisecond}), CacheDir: job.CacheDir})
	if err != nil {
		return nil, err
	}
	switch job.Do {
	case "config":
		img, err := r.Open(ctx, job.Image)
		if err != nil {
			return nil, err
		}
		_, err = img.ConfigFile()
		return nil, err
	case "attachments":
		_, err := attachments(ctx, r, job.Image)
		return nil, err
	case "attached":
		repository, err := r.Repository(job.Image)
		if err != nil {
			return nil, err
		}
		_, err = repository.Attached(ctx, job.Image.Digest)
		return nil, err
	case "discard":
		return nil, r.Walk(ctx, job.Image, func(f layer.File) error {
			_, err := io.Copy(io.Discard, f.Content)
			return err
		})
	case "resolve":
		_, err := r.Resolve(ctx, job.Image.Pullspec)
		return nil, err
	}
	files := map[string]string{}
	err = r.Walk(ctx, job.Image, func(f layer.File) error {
		data, err := io.ReadAll(f.Content)
		files[f.Name] = string(data)
		return err
	})
	if err != nil {
		return nil, err
	}
	return files, nil
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	found := highWater.FindSubmatch(status)
	if found == nil {
		return 0
	}
	kib, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return kib << 10
}

// read reads an image in a separate process.
func read(t *testing.T, job reading) outcome {
	t.Helper()
	work, err := json.Marshal(job)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	process := exec.CommandContext(ctx, os.Args[0])
	process.Env = append(os.Environ(), readerEnv+"="+string(work), "GORACE=halt_on_error=1 atexit_sleep_ms=0")
	process.Stderr = os.Stderr
	out, err := process.Output()
	require.NoError(t, err)
	var o outcome
	require.NoError(t, json.Unmarshal(out, &o))
	o.CPU = process.ProcessState.UserTime() + process.ProcessState.SystemTime()
	return o
}

// hostile is a registry with arbitrary responses.
type hostile struct {
	*httptest.Server
	mu      sync.Mutex // responses may change between two requests
	content map[string][]byte
	// answers override content; the key is "manifests/<identifier>", "blobs/<digest>" or "referrers/<digest>".
	answers map[string]http.HandlerFunc
}

func startHostile(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{content: map[string][]byte{}, answers: map[string]http.HandlerFunc{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	t.Cleanup(h.CloseClientConnections)
	return h
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := strings.TrimPrefix(r.URL.Path, "/v2/platform/release/")
	if r.URL.Path == "/v2/" {
		what = "ping"
	}
	h.mu.Lock()
	answer, ok := h.answers[what]
	h.mu.Unlock()
	if ok {
		answer(w, r)
		return
	}
	_, id, _ := strings.Cut(what, "/")
	h.mu.Lock()
	data, ok := h.content[id]
	h.mu.Unlock()
	switch {
	case what == "ping":
		return
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		return
	case strings.HasPrefix(what, "manifests/"):
		w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
		w.Header().Set("Docker-Content-Digest", digestOf(data))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data)
}

func digestOf(data []byte) string {
	hash, _, err := v1.SHA256(bytes.NewReader(data))
	if err != nil {
		panic(err)
	}
	return hash.String()
}

// set stores content under a digest or a tag.
func (h *hostile) set(id string, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.content[id] = data
}

// answer replaces the response to a request.
func (h *hostile) answer(what string, f http.HandlerFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers[what] = f
}

func (h *hostile) drop(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.content, id)
}

// add stores content and returns its descriptor.
func (h *hostile) add(mediaType types.MediaType, data []byte) v1.Descriptor {
	digest := digestOf(data)
	h.set(digest, data)
	hash, err := v1.NewHash(digest)
	if err != nil {
		panic(err)
	}
	return v1.Descriptor{MediaType: mediaType, Digest: hash, Size: int64(len(data))}
}

// bundle is the media type of a sigstore bundle.
const bundle = "application/vnd.dev.sigstore.bundle.v0.3+json"

// bundle stores a manifest that attaches a sigstore bundle to an image, and returns its descriptor.
func (h *hostile) bundle(img release.Image, layer v1.Descriptor) v1.Descriptor {
	text, err := json.Marshal(struct {
		v1.Manifest
		ArtifactType string `json:"artifactType"`
	}{v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: v1.Descriptor{MediaType: bundle, Digest: layer.Digest}, Layers: []v1.Descriptor{layer},
		Subject: &v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: v1.Hash{Algorithm: "sha256", Hex: img.Digest.Hex()}, Size: 100},
	}, bundle})
	if err != nil {
		panic(err)
	}
	desc := h.add(types.OCIManifestSchema1, text)
	desc.ArtifactType = bundle
	return desc
}

// put stores a manifest.
func (h *hostile) put(manifest string) release.Image {
	desc := h.add(types.OCIManifestSchema1, []byte(manifest))
	h.set("1", []byte(manifest))
	return release.Image{Pullspec: strings.TrimPrefix(h.URL, "http://") + "/platform/release:1", Digest: release.Digest(desc.Digest.String())}
}

// image stores an image with stored layers.
func (h *hostile) image(layers ...v1.Descriptor) release.Image {
	config := h.add(types.OCIConfigJSON, []byte(`{}`))
	text, err := json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: layers})
	if err != nil {
		panic(err)
	}
	return h.put(string(text))
}

// tarball returns an archive with the given headers and zeros as content.
func tarball(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		require.NoError(t, w.WriteHeader(&h))
		if h.Size > 0 {
			_, err := io.CopyN(w, zeros{}, h.Size)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// pour returns the compressed output of fill.
func pour(t *testing.T, compress func(io.Writer) io.WriteCloser, fill func(*tar.Writer)) []byte {
	t.Helper()
	var out bytes.Buffer
	z := compress(&out)
	w := tar.NewWriter(z)
	fill(w)
	require.NoError(t, w.Flush())
	require.NoError(t, z.Close())
	return out.Bytes()
}

func gz(w io.Writer) io.WriteCloser {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		panic(err)
	}
	return z
}

func zst(w io.Writer) io.WriteCloser {
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		panic(err)
	}
	return z
}

// oneFile returns a function that fills an archive with one file of the given size.
func oneFile(t *testing.T, name string, size int64) func(*tar.Writer) {
	return func(w *tar.Writer) {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size}))
		_, err := io.CopyN(w, zeros{}, size)
		require.NoError(t, err)
	}
}

func manyFiles(t *testing.T, format string, n int) func(*tar.Writer) {
	return func(w *tar.Writer) {
		for i := range n {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: fmt.Sprintf(format, i), Typeflag: tar.TypeReg}))
		}
	}
}

// endless returns a handler that sends an endless response.
func endless(header http.Header, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			return
		}
		for name := range header {
			w.Header().Set(name, header.Get(name))
		}
		if status := header.Get("Status"); status != "" {
			code, _ := strconv.Atoi(status)
			w.WriteHeader(code)
		}
		chunk := []byte(strings.Repeat(text, 1<<16/len(text)))
		for {
			if _, err := w.Write(chunk); err != nil || r.Context().Err() != nil {
				return
			}
		}
	}
}

//threat:layer-manifest-tampered a layer that does not match its digest
//threat:layer-manifest-tampered a manifest that does not match its digest
//threat:endless-answers an endless manifest
//threat:endless-answers an endless layer
//threat:endless-answers an endless list of referrers
//threat:endless-answers an endless error
//threat:slow-silent-registries a registry that stops responding
//threat:slow-silent-registries a slow registry
//threat:broken-answers-cut a layer shorter than its Content-Length
//threat:broken-answers-cut a layer longer than its Content-Length
//threat:decompression-bombs-frames a gzip bomb
//threat:decompression-bombs-frames a zstd bomb
//threat:decompression-bombs-frames a bomb among the manifests
//threat:decompression-bombs-frames a zstd frame that needs much memory
//threat:million-files-thousand too many files
//threat:million-files-thousand a thousand layers
//threat:million-files-thousand many PAX headers
//threat:paths-absolute-paths a path that leaves the image
//threat:paths-absolute-paths an absolute path
//threat:links-devices-pipes a symbolic link
//threat:links-devices-pipes a hard link
//threat:links-devices-pipes a device
//threat:links-devices-pipes a pipe
//threat:links-devices-pipes a sparse file
//threat:pax-gnu-tricks a PAX path that leaves the image
//threat:pax-gnu-tricks a huge PAX header
//threat:pax-gnu-tricks a huge GNU name
//threat:document-readers-understand a duplicate name in a document
//threat:document-readers-understand a name in another case
//threat:document-readers-understand both an image and an index
//threat:images-schema-1 a schema 1 document
//threat:foreign-encrypted-layers a foreign layer
//threat:foreign-encrypted-layers an encrypted layer
//threat:index-index-index nested indexes
//threat:index-index-index an index that lists itself
//threat:deep-nesting a deeply nested document
func TestHostileImagesAreRejected(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const tooManyFiles, manyHeaders = "too many files", "many PAX headers"
	const ociIndex = `"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json"`
	const layerType = types.OCILayer
	layer := func(h *hostile, data []byte) release.Image { return h.image(h.add(layerType, data)) }
	valid := func(t *testing.T) []byte {
		return tarball(t, tar.Header{Name: "manifests/a.yaml", Typeflag: tar.TypeReg, Size: 100_000})
	}
	entry := func(h tar.Header) func(*testing.T, *hostile) reading {
		return func(t *testing.T, s *hostile) reading { return reading{Image: layer(s, tarball(t, h))} }
	}
	raw := func(manifest string) func(*testing.T, *hostile) reading {
		return func(_ *testing.T, s *hostile) reading { return reading{Image: s.put(manifest)} }
	}
	filled := func(compress func(io.Writer) io.WriteCloser, fill func(*testing.T) func(*tar.Writer)) func(*testing.T, *hostile) reading {
		return func(t *testing.T, s *hostile) reading { return reading{Image: layer(s, pour(t, compress, fill(t)))} }
	}
	many := func(what string, n int) string { return strings.TrimSuffix(strings.Repeat(what+",", n), ",") }

	for _, tt := range []struct {
		name  string
		start func(*testing.T, *hostile) reading
		is    func(outcome) bool
		want  string
	}{
		{"a layer that does not match its digest", func(t *testing.T, s *hostile) reading {
			data := valid(t)
			img := layer(s, data)
			s.answer("blobs/"+digestOf(data), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(flip(data)) })
			return reading{Image: img}
		}, integrity, "it was changed in transit or in the registry"},
		{"a manifest that does not match its digest", func(t *testing.T, s *hostile) reading {
			img := layer(s, valid(t))
			manifest := s.content[string(img.Digest)]
			s.set(string(img.Digest), flip(manifest))
			return reading{Image: img}
		}, nil, "does not match requested digest"},
		{"a path that leaves the image", entry(tar.Header{Name: "manifests/../../etc/passwd", Typeflag: tar.TypeReg}), integrity, "leads out of its folder"},
		{"an absolute path", entry(tar.Header{Name: "/manifests/a.yaml", Typeflag: tar.TypeReg}), integrity, "absolute path"},
		{"a symbolic link", entry(tar.Header{Name: "manifests/a.yaml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}), integrity, "is a symbolic link"},
		{"a hard link", entry(tar.Header{Name: "manifests/a.yaml", Typeflag: tar.TypeLink, Linkname: "etc/passwd"}), integrity, "is a hard link"},
		{"a device", entry(tar.Header{Name: "manifests/a.yaml", Typeflag: tar.TypeChar}), integrity, "is a device"},
		{"a pipe", entry(tar.Header{Name: "manifests/a.yaml", Typeflag: tar.TypeFifo}), integrity, "is a pipe"},
		{"a link in place of a folder", entry(tar.Header{Name: "manifests", Typeflag: tar.TypeSymlink, Linkname: "/etc"}), integrity, "but must be a folder"},
		{"a duplicate file in a layer", func(t *testing.T, s *hostile) reading {
			same := tar.Header{Name: "manifests/a.yaml", Typeflag: tar.TypeReg}
			return reading{Image: layer(s, tarball(t, same, same))}
		}, integrity, "occurs twice in a layer"},
		{"a gzip bomb", filled(gz, func(t *testing.T) func(*tar.Writer) { return oneFile(t, "usr/bomb", 320<<20) }), limit, "more than 200 times as much"},
		{"a zstd bomb", filled(zst, func(t *testing.T) func(*tar.Writer) { return oneFile(t, "usr/bomb", 320<<20) }), limit, "more than 200 times as much"},
		{"a bomb among the manifests", filled(zst, func(t *testing.T) func(*tar.Writer) { return oneFile(t, "manifests/bomb.yaml", 320<<20) }), limit, "has 335544320 bytes, the limit is 8388608"},
		{"a zstd frame that needs much memory", func(_ *testing.T, s *hostile) reading {
			// A frame header with a window of 2 GiB (RFC 8878, 3.1.1.1).
			return reading{Image: layer(s, append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3}, make([]byte, 100)...))}
		}, limit, "compress it with level 19 or lower"},
		{tooManyFiles, filled(zst, func(t *testing.T) func(*tar.Writer) { return manyFiles(t, "usr/%d", 310_000) }), limit, "the image has more than 300000 files"},
		{"many manifests", filled(zst, func(t *testing.T) func(*tar.Writer) { return manyFiles(t, "manifests/%d.yaml", 20_500) }), limit, "contain more than 20000 files"},
		{"many whiteouts", filled(zst, func(t *testing.T) func(*tar.Writer) { return manyFiles(t, "manifests/.wh.%d", 20_500) }), limit, "contain more than 20000 files"},
		{"a thousand layers", func(t *testing.T, s *hostile) reading {
			layers := make([]v1.Descriptor, 1000)
			for i := range layers {
				layers[i] = s.add(layerType, valid(t))
			}
			return reading{Image: s.image(layers...)}
		}, limit, "the image has 1000 layers, the limit is 512"},
		{"a layer with a huge declared size", func(t *testing.T, s *hostile) reading {
			desc := s.add(layerType, valid(t))
			desc.Size = 1 << 50
			return reading{Image: s.image(desc)}
		}, limit, "has 1125899906842624 bytes, the limit is 2147483648"},
		{"a layer with a negative size", func(t *testing.T, s *hostile) reading {
			desc := s.add(layerType, valid(t))
			desc.Size = -1
			return reading{Image: s.image(desc)}
		}, limit, "has -1 bytes"},
		{"a layer with another digest algorithm", raw(`{"schemaVersion":2,"config":{},"layers":[{"mediaType":"` + string(layerType) + `","size":1,"digest":"md5:d41d8cd98f00b204e9800998ecf8427e"}]}`), integrity, "md5"},
		{"a huge index", raw(`{` + ociIndex + `,"manifests":[` + many(`{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,"digest":"sha256:`+strings.Repeat("0", 64)+`"}`, 20_000) + `]}`), limit, "more than 50000 values"},
		{"an index of empty entries", raw(`{` + ociIndex + `,"manifests":[` + many(`{}`, 1_300_000) + `]}`), limit, "a list of more than 100000 items"},
		{"a manifest of empty layers", raw(`{"schemaVersion":2,"config":{},"layers":[` + many(`{}`, 1_300_000) + `]}`), limit, "a list of more than 100000 items"},
		{"a manifest of nulls", raw(`{"schemaVersion":2,"config":{},"layers":[` + many(`null`, 800_000) + `]}`), limit, "a list of more than 100000 items"},
		{"an index of many images", raw(`{` + ociIndex + `,"manifests":[` + many(`{"platform":{"os":"linux","architecture":"x"}}`, 2000) + `]}`), limit, "the index lists 2000 images, the limit is 1000"},
		{"a deeply nested document", raw(strings.Repeat(`{"a":`, 100_000)), limit, "more than 64 levels"},
		{"nested indexes", func(t *testing.T, s *hostile) reading {
			img := layer(s, valid(t))
			for range 5 {
				img = s.put(fmt.Sprintf(`{%s,"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","size":%d,"digest":%q}]}`, ociIndex, len(s.content[string(img.Digest)]), img.Digest))
			}
			return reading{Image: img}
		}, limit, "more than 3 nested indexes"},
		{"an index that lists itself", func(_ *testing.T, s *hostile) reading {
			digest := "sha256:" + strings.Repeat("ab", 32)
			loop := []byte(fmt.Sprintf(`{%s,"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","size":1,"digest":%q}]}`, ociIndex, digest))
			s.set(digest, loop)
			return reading{Image: s.put(string(loop))}
		}, nil, "does not match requested digest"},
		{"both an image and an index", raw(`{"schemaVersion":2,"manifests":[],"layers":[]}`), integrity, "both an image and an index"},
		{"a duplicate name in a document", raw(`{"schemaVersion":2,"config":{},"layers":[],"layers":[]}`), integrity, `"layers" occurs twice`},
		{"a name in another case", raw(`{"schemaVersion":2,"config":{},"layers":[],"Layers":[]}`), integrity, `"Layers" has the wrong case`},
		{"a name with a look-alike letter", raw(`{"schemaVersion":2,"config":{},"layers":[],"layerſ":[]}`), integrity, "has the wrong case"},
		{"text after a document", raw(`{"schemaVersion":2,"config":{},"layers":[]} {}`), integrity, "followed by more text"},
		{"a document that is not JSON", raw(`<html>`), integrity, "the text is not JSON"},
		{"a schema 1 document", raw(`{"schemaVersion":1,"name":"platform/release","tag":"1","fsLayers":[{"blobSum":"sha256:` + strings.Repeat("0", 64) + `"}],"history":[{"v1Compatibility":"{}"}]}`), integrity, "rebuild the image as OCI or Docker schema 2"},
		{"a huge configuration", func(t *testing.T, s *hostile) reading {
			desc := s.add(types.OCIConfigJSON, bytes.Repeat([]byte(" "), 5<<20))
			text, err := json.Marshal(v1.Manifest{SchemaVersion: 2, Config: desc, Layers: []v1.Descriptor{}})
			require.NoError(t, err)
			return reading{Image: s.put(string(text)), Do: "config"}
		}, limit, "has 5242880 bytes, the limit is 4194304"},
		{"a configuration with a long history", func(t *testing.T, s *hostile) reading {
			desc := s.add(types.OCIConfigJSON, []byte(`{"history":[`+many(`{}`, 1_300_000)+`]}`))
			text, err := json.Marshal(v1.Manifest{SchemaVersion: 2, Config: desc, Layers: []v1.Descriptor{}})
			require.NoError(t, err)
			return reading{Image: s.put(string(text)), Do: "config"}
		}, limit, "more than 50000 values"},
		{"a duplicate name in a configuration", func(t *testing.T, s *hostile) reading {
			desc := s.add(types.OCIConfigJSON, []byte(`{"config":{"Labels":{"a":"b"}},"config":{}}`))
			text, err := json.Marshal(v1.Manifest{SchemaVersion: 2, Config: desc, Layers: []v1.Descriptor{}})
			require.NoError(t, err)
			return reading{Image: s.put(string(text)), Do: "config"}
		}, integrity, `"config" occurs twice`},
		{"an endless manifest", func(t *testing.T, s *hostile) reading {
			img := layer(s, valid(t))
			s.answer("manifests/"+string(img.Digest), endless(nil, " "))
			return reading{Image: img}
		}, limit, "more than 4194304 bytes"},
		{"an endless manifest by tag", func(_ *testing.T, s *hostile) reading {
			img := s.put(`{}`)
			s.answer("manifests/1", endless(nil, " "))
			return reading{Image: img, Do: "resolve"}
		}, limit, "more than 4194304 bytes"},
		{"an endless layer", func(t *testing.T, s *hostile) reading {
			data := valid(t)
			img := layer(s, data)
			s.answer("blobs/"+digestOf(data), endless(nil, "x"))
			return reading{Image: img}
		}, integrity, "bytes expected"},
		{"an endless error", func(t *testing.T, s *hostile) reading {
			img := layer(s, valid(t))
			s.answer("manifests/"+string(img.Digest), endless(http.Header{"Status": {"400"}}, "x"))
			return reading{Image: img}
		}, nil, "byte limit"},
		{"an endless list of referrers", func(t *testing.T, s *hostile) reading {
			img := layer(s, valid(t))
			s.answer("referrers/"+string(img.Digest), endless(http.Header{"Content-Type": {string(types.OCIImageIndex)}}, " "))
			return reading{Image: img, Do: "attachments"}
		}, limit, "more than 4194304 bytes"},
		{"a huge list of referrers", func(t *testing.T, s *hostile) reading {
			img := layer(s, valid(t))
			s.answer("referrers/"+string(img.Digest), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", string(types.OCIImageIndex))
				_, _ = io.WriteString(w, `{`+ociIndex+`,"manifests":[`+many(`{}`, 1_300_000)+`]}`)
			})
			return reading{Image: img, Do: "attached"}
		}, limit, "a list of more than 100000 items"},
		{"a layer longer than its Content-Length", func(t *testing.T, s *hostile) reading {
			data := valid(t)
			img := layer(s, data)
			s.answer("blobs/"+digestOf(data), lengthOf(len(data)/2, data))
			return reading{Image: img}
		}, nil, "layer 1 of 1"},
		{"a layer shorter than its Content-Length", func(t *testing.T, s *hostile) reading {
			data := valid(t)
			img := layer(s, data)
			s.answer("blobs/"+digestOf(data), lengthOf(len(data), data[:len(data)/2]))
			return reading{Image: img}
		}, nil, "layer 1 of 1"},
		{"a registry that stops responding", func(t *testing.T, s *hostile) reading {
			data := valid(t)
			img := layer(s, data)
			s.answer("blobs/"+digestOf(data), func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write(data[:10])
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			return reading{Image: img, Stall: 300 * time.Millisecond}
		}, func(o outcome) bool { return o.Stalled }, "no progress"},
		{"a slow registry", func(t *testing.T, s *hostile) reading {
			data := valid(t)
			img := layer(s, data)
			s.answer("blobs/"+digestOf(data), func(w http.ResponseWriter, r *http.Request) {
				for i := range data {
					if _, err := w.Write(data[i : i+1]); err != nil || r.Context().Err() != nil {
						return
					}
					_ = http.NewResponseController(w).Flush()
					select {
					case <-r.Context().Done():
					case <-time.After(10 * time.Millisecond):
					}
				}
			})
			return reading{Image: img, Timeout: time.Second}
		}, func(o outcome) bool { return o.OutOfTime }, "context deadline exceeded"},
		{"a foreign layer", func(t *testing.T, s *hostile) reading {
			return reading{Image: s.image(s.add(types.DockerForeignLayer, valid(t)))}
		}, integrity, "rebuild the image with plain layers"},
		{"an encrypted layer", func(t *testing.T, s *hostile) reading {
			return reading{Image: s.image(s.add("application/vnd.oci.image.layer.v1.tar+encrypted", valid(t)))}
		}, integrity, "rebuild the image with plain layers"},
		{"a sparse file", func(t *testing.T, s *hostile) reading {
			return reading{Image: layer(s, sparse(t, "manifests/a.yaml"))}
		}, integrity, "is a sparse file"},
		{"a sparse file in the old format", func(t *testing.T, s *hostile) reading {
			return reading{Image: layer(s, oldSparse(t, "manifests/a.yaml"))}
		}, integrity, "is a sparse file"},
		{"a PAX path that leaves the image", entry(tar.Header{Name: "manifests/" + strings.Repeat("x", 120) + "/../../../etc/passwd", Typeflag: tar.TypeReg, Format: tar.FormatPAX}), integrity, "leads out of its folder"},
		{"a long GNU path that leaves the image", entry(tar.Header{Name: "manifests/" + strings.Repeat("x", 120) + "/../../../etc/passwd", Typeflag: tar.TypeReg, Format: tar.FormatGNU}), integrity, "leads out of its folder"},
		{"a huge PAX header", func(t *testing.T, s *hostile) reading {
			archive := tarball(t, tar.Header{Name: "PaxHeaders/x", Typeflag: tar.TypeReg, Size: 64 << 20}, tar.Header{Name: "x", Typeflag: tar.TypeReg})
			archive[156] = tar.TypeXHeader
			checksum(archive[:512])
			return reading{Image: layer(s, archive)}
		}, integrity, "header field too long"},
		{"a huge GNU name", func(t *testing.T, s *hostile) reading {
			archive := tarball(t, tar.Header{Name: "././@LongLink", Typeflag: tar.TypeReg, Size: 64 << 20, Format: tar.FormatGNU}, tar.Header{Name: "x", Typeflag: tar.TypeReg})
			archive[156] = tar.TypeGNULongName
			checksum(archive[:512])
			return reading{Image: layer(s, archive)}
		}, integrity, "header field too long"},
		{"a path of a million bytes", entry(tar.Header{Name: "usr/" + strings.Repeat("x", 1_000_000), Typeflag: tar.TypeReg, Format: tar.FormatPAX}), limit, "a path of 1000004 bytes, the limit is 4096"},
		{"a file name of a thousand bytes", entry(tar.Header{Name: "manifests/" + strings.Repeat("x", 1000), Typeflag: tar.TypeReg, Format: tar.FormatPAX}), limit, "a file name of 1000 bytes, the limit is 255"},
		{manyHeaders, filled(zst, func(t *testing.T) func(*tar.Writer) {
			return func(w *tar.Writer) {
				for i := range 200_000 {
					require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": strconv.Itoa(i)}}))
				}
			}
		}), limit, "unpacks to more than 200 times as much"},
		{"a file longer than the archive", func(_ *testing.T, s *hostile) reading {
			whole := tarball(t, tar.Header{Name: "manifests/a.yaml", Typeflag: tar.TypeReg, Size: 5000})
			return reading{Image: layer(s, whole[:2000])}
		}, integrity, `reading "manifests/a.yaml": unexpected EOF`},
		{"a header with a wrong checksum", func(t *testing.T, s *hostile) reading {
			whole := tarball(t, tar.Header{Name: "manifests/a.yaml", Typeflag: tar.TypeReg})
			whole[0] = 'M'
			return reading{Image: layer(s, whole)}
		}, integrity, "reading tar"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if fixture.RaceDetector && (tt.name == tooManyFiles || tt.name == manyHeaders) {
				t.Skip("`make test` reads this image without the race detector")
			}
			s := startHostile(t)
			job := tt.start(t, s)
			for _, dir := range []string{"", t.TempDir()} {
				job.CacheDir = dir
				o := read(t, job)
				t.Logf("%v (CPU %v), %d MiB: %s", o.Took.Round(time.Millisecond), o.CPU.Round(time.Millisecond), o.Memory>>20, o.Error)
				require.NotEmpty(t, o.Error)
				assert.Contains(t, o.Error, tt.want)
				assert.Contains(t, o.Error, job.Image.Repository(), "the error does not name the image")
				if tt.is != nil {
					assert.True(t, tt.is(o), "%+v", o)
				}
				assert.Empty(t, o.Files)
				assert.Less(t, len(o.Error), 2000)
				assert.Less(t, o.CPU, hostileTime)
				assert.Less(t, o.Memory, int64(hostileMemory))
			}
		})
	}
}

func integrity(o outcome) bool { return o.Integrity }
func limit(o outcome) bool     { return o.Limit }

// lengthOf responds with data and a wrong Content-Length.
func lengthOf(n int, data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(out, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", n)
		_, _ = out.Write(data)
		_ = out.Flush()
	}
}

// sparse returns an archive with a file in PAX's sparse format 0.1: an empty file of 1 MiB.
func sparse(t *testing.T, name string) []byte {
	t.Helper()
	records := ""
	for _, r := range []string{"GNU.sparse.major=0", "GNU.sparse.minor=1", "GNU.sparse.name=" + name, "GNU.sparse.size=1048576", "GNU.sparse.numblocks=1", "GNU.sparse.map=0,0"} {
		n := len(r) + 3
		for len(strconv.Itoa(n))+len(r)+2 != n {
			n++
		}
		records += fmt.Sprintf("%d %s\n", n, r)
	}
	archive := tarball(t, tar.Header{Name: "PaxHeaders/x", Typeflag: tar.TypeReg, Size: int64(len(records))}, tar.Header{Name: "x", Typeflag: tar.TypeReg})
	copy(archive[512:], records)
	archive[156] = tar.TypeXHeader
	checksum(archive[:512])
	return archive
}

// oldSparse returns an archive with a file in GNU's first sparse format.
func oldSparse(t *testing.T, name string) []byte {
	t.Helper()
	archive := tarball(t, tar.Header{Name: name, Typeflag: tar.TypeReg, Format: tar.FormatGNU})
	archive[156] = tar.TypeGNUSparse
	copy(archive[386:], "00000000000\x0000000000000\x00")
	copy(archive[483:], "00004000000\x00")
	checksum(archive[:512])
	return archive
}

// checksum updates the checksum of a modified header.
func checksum(header []byte) {
	copy(header[148:156], "        ")
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

// TestRealReleaseNeedsLittleMemory reads a real release of 932 files and 17 MB, one file at a time.
func TestRealReleaseNeedsLittleMemory(t *testing.T) {
	registry := fixture.StartRegistry(t)
	folder := os.DirFS(filepath.Join(fixture.Testdata(t), "payloads", "4.23.0"))
	img, err := fixture.PushRelease(t.Context(), registry, folder, "platform/release:4.23.0")
	require.NoError(t, err)
	limit := 64 << 20
	if fixture.RaceDetector {
		limit *= 2 // the race detector uses shadow memory
	}
	for _, dir := range []string{"", t.TempDir()} {
		o := read(t, reading{Image: img, Do: "discard", CacheDir: dir})
		t.Logf("%v (CPU %v), %d MiB", o.Took.Round(time.Millisecond), o.CPU.Round(time.Millisecond), o.Memory>>20)
		require.Empty(t, o.Error)
		assert.Less(t, o.Memory, int64(limit))
	}
}

//threat:foreign-encrypted-layers
func TestForeignAddressesAreNotFollowed(t *testing.T) {
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	s := startHostile(t)
	desc := s.add(types.OCILayer, tarball(t, tar.Header{Name: "manifests/a.yaml", Typeflag: tar.TypeReg}))
	desc.URLs = []string{elsewhere.URL}
	here := s.image(desc)
	o := read(t, reading{Image: here})
	assert.Equal(t, map[string]string{"manifests/a.yaml": ""}, o.Files)
	s.drop(desc.Digest.String())
	o = read(t, reading{Image: here})
	assert.True(t, o.NotFound, o.Error)
	assert.Zero(t, asked.Load())
}

//threat:tag-moved-resolving
func TestMovedTagIsNotPulled(t *testing.T) {
	s := startHostile(t)
	before := s.image(s.add(types.OCILayer, tarball(t, tar.Header{Name: "manifests/before.yaml", Typeflag: tar.TypeReg})))
	r := open(t, image.Options{})
	resolved, err := r.Resolve(t.Context(), before.Pullspec)
	require.NoError(t, err)
	require.Equal(t, before, resolved)
	after := s.image(s.add(types.OCILayer, tarball(t, tar.Header{Name: "manifests/after.yaml", Typeflag: tar.TypeReg})))
	fsys, err := r.Manifests(t.Context(), resolved)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"manifests/before.yaml": ""}, contents(t, fsys), "the image with the resolved digest is read")
	s.drop(string(before.Digest))
	_, err = r.Manifests(t.Context(), resolved)
	require.ErrorIs(t, err, failure.ErrNotFound)
	resolved, err = r.Resolve(t.Context(), before.Pullspec)
	require.NoError(t, err)
	assert.Equal(t, after, resolved)
}
