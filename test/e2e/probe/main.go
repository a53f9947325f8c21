// Command probe runs in pods to test the cluster itself.
//
//	probe serve        answers at :8080: /name is the pod's host name, /file?path= a file, /get?url= the answer of a URL
package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	// Without new connections, one from before the service's rules took effect might keep leading elsewhere.
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	http.HandleFunc("GET /name", func(w http.ResponseWriter, _ *http.Request) {
		name, err := os.Hostname()
		reply(w, []byte(name), err)
	})
	http.HandleFunc("GET /file", func(w http.ResponseWriter, r *http.Request) {
		content, err := os.ReadFile(r.FormValue("path"))
		reply(w, content, err)
	})
	http.HandleFunc("GET /get", func(w http.ResponseWriter, r *http.Request) {
		response, err := client.Get(r.FormValue("url"))
		if err != nil {
			reply(w, nil, err)
			return
		}
		defer func() { _ = response.Body.Close() }()
		content, err := io.ReadAll(response.Body)
		reply(w, content, err)
	})
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Minute}
	log.Fatal(server.ListenAndServe())
}

func reply(w http.ResponseWriter, content []byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	_, _ = w.Write(content)
}
