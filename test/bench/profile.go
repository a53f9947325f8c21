package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/test/env"
)

// startProfile starts a processor profile of kube-apiserver at the start of an install or an update. It returns a function
// that waits for the profile, which is a file beside the logs.
func (b *bench) startProfile(ctx context.Context, e *env.Env, subject, phase string) (wait func()) {
	if b.options.profile == 0 || phase != phaseInstall && phase != phaseUpdate {
		return func() {}
	}
	var done sync.WaitGroup
	name := fmt.Sprintf("%s-%s-%d.pprof", strings.Fields(subject)[0], phase, time.Now().Unix())
	done.Go(func() {
		if err := b.saveProfile(ctx, e, filepath.Join(b.logs, name)); err != nil {
			b.say("no profile of the API server: %v", err)
		}
	})
	return done.Wait
}

func (b *bench) saveProfile(ctx context.Context, e *env.Env, file string) error {
	config := e.Config("bench")
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	url := fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", strings.TrimSuffix(config.Host, "/"), int(b.options.profile.Seconds()))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = f.ReadFrom(resp.Body)
	return errors.Join(err, f.Close())
}
