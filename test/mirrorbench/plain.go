package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// plain copies images in the simplest way: it gets and puts every manifest and every blob once. It does not check, query, retry or skip
// anything.
type plain struct {
	client *http.Client
	to     string // http://host/v2/repository
	width  int
}

// plainCopy is the process of the plain copy, with the arguments LIST TARGET WIDTH.
func plainCopy(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: plain LIST TARGET WIDTH")
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var images []string
	if err := json.Unmarshal(data, &images); err != nil {
		return err
	}
	host, repository, _ := strings.Cut(args[1], "/")
	p := &plain{to: "http://" + host + "/v2/" + repository}
	if p.width, err = strconv.Atoi(args[2]); err != nil {
		return err
	}
	p.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: p.width}}
	return p.copy(ctx, images)
}

func (p *plain) copy(ctx context.Context, images []string) error {
	manifests := make([][]byte, len(images))
	err := p.each(ctx, len(images), func(ctx context.Context, i int) (err error) {
		manifests[i], err = p.manifest(ctx, images[i])
		return err
	})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var blobs []string
	seen := map[string]bool{}
	for i, manifest := range manifests {
		var m struct {
			Config struct{ Digest string }
			Layers []struct{ Digest string }
		}
		if err := json.Unmarshal(manifest, &m); err != nil {
			return err
		}
		for _, digest := range append(layerDigests(m.Layers), m.Config.Digest) {
			mu.Lock()
			if !seen[digest] {
				seen[digest] = true
				blobs = append(blobs, from(images[i], "blobs", digest))
			}
			mu.Unlock()
		}
	}
	if err := p.each(ctx, len(blobs), func(ctx context.Context, i int) error { return p.blob(ctx, blobs[i]) }); err != nil {
		return err
	}
	return p.each(ctx, len(images), func(ctx context.Context, i int) error {
		_, digest, _ := strings.Cut(images[i], "@")
		return p.do(ctx, http.MethodPut, p.to+"/manifests/"+digest, bytes.NewReader(manifests[i]), int64(len(manifests[i])), nil)
	})
}

func layerDigests(layers []struct{ Digest string }) []string {
	out := make([]string, 0, len(layers)+1)
	for _, l := range layers {
		out = append(out, l.Digest)
	}
	return out
}

func (p *plain) each(ctx context.Context, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.width)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// from returns the URL of a manifest or blob in the repository of an image.
func from(image, kind, digest string) string {
	host, rest, _ := strings.Cut(image, "/")
	repository, _, _ := strings.Cut(rest, "@")
	return "http://" + host + "/v2/" + repository + "/" + kind + "/" + digest
}

func (p *plain) manifest(ctx context.Context, image string) (raw []byte, err error) {
	_, digest, _ := strings.Cut(image, "@")
	return raw, p.do(ctx, http.MethodGet, from(image, "manifests", digest), nil, 0, func(resp *http.Response) (err error) {
		raw, err = io.ReadAll(resp.Body)
		return err
	})
}

func (p *plain) blob(ctx context.Context, source string) error {
	digest := source[strings.LastIndex(source, "/")+1:]
	var location string
	err := p.do(ctx, http.MethodPost, p.to+"/blobs/uploads/", nil, 0, func(resp *http.Response) error {
		at, err := resp.Request.URL.Parse(resp.Header.Get("Location"))
		if err == nil {
			at.RawQuery = url.Values{"digest": {digest}}.Encode()
			location = at.String()
		}
		return err
	})
	if err != nil {
		return err
	}
	return p.do(ctx, http.MethodGet, source, nil, 0, func(resp *http.Response) error {
		return p.do(ctx, http.MethodPut, location, io.NopCloser(resp.Body), resp.ContentLength, nil)
	})
}

func (p *plain) do(ctx context.Context, method, url string, body io.Reader, size int64, use func(*http.Response) error) error {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	if body != nil {
		req.ContentLength = size
		req.Header.Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	if use != nil {
		err = use(resp)
	}
	_, drained := io.Copy(io.Discard, resp.Body)
	return errors.Join(err, drained)
}
