// Command server is an image registry with TLS and a password, in a container beside the nodes of a test cluster. It responds at :5000 with
// a certificate for its own addresses, issued by the given authority. Tests control it at :5001, see package control.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/registry"

	"github.com/cluster-version/cvo/test/fixture/authority"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	issuer, err := authority.Parse([]byte(os.Getenv("CA_CERTIFICATE")), []byte(os.Getenv("CA_KEY")))
	if err != nil {
		return err
	}
	names, err := ownNames()
	if err != nil {
		return err
	}
	certificate, err := issuer.Issue(names...)
	if err != nil {
		return err
	}
	images := ggcr.New(ggcr.WithReferrersSupport(true), ggcr.WithBlobHandler(ggcr.NewDiskBlobHandler("/data")),
		ggcr.Logger(log.New(io.Discard, "", 0)))
	// The library locks all uploads while it reads the body of one. With HTTP/2, the bodies of the other uploads would fill the shared
	// window until no upload makes progress.
	oneByOne := &http.Protocols{}
	oneByOne.SetHTTP1(true)
	faults := &faulty{next: guarded(images, os.Getenv("REGISTRY_USER"), os.Getenv("REGISTRY_PASSWORD")), now: time.Now}
	servers := []*http.Server{
		{
			Addr: ":5000", Handler: faults, Protocols: oneByOne, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		},
		{Addr: ":5001", Handler: faults.control(), ReadHeaderTimeout: time.Minute},
	}
	failed := make(chan error, len(servers))
	for _, server := range servers {
		go func() {
			if server.TLSConfig != nil {
				failed <- server.ListenAndServeTLS("", "")
				return
			}
			failed <- server.ListenAndServe()
		}()
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	for _, server := range servers {
		err = errors.Join(err, server.Close())
	}
	return err
}

// ownNames returns the host names and addresses with which clients may reach this registry.
func ownNames() ([]string, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the host name: %w", err)
	}
	names := []string{host, "localhost"}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("finding own addresses: %w", err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok {
			names = append(names, network.IP.String())
		}
	}
	return names, nil
}
