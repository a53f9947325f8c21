package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
)

func TestZZ(t *testing.T) {
	p, r := newRealPlatform(t)
	p.start("operators")
	begin := time.Now()
	p.operator(r.from.ByDigest())
	p.await("4.22.9 to complete", 3*time.Minute, completed("4.22.9"))
	time.Sleep(3 * time.Second)
	show := func() {
		hist := map[string]int{}
		for _, e := range p.audit(begin) {
			if strings.HasPrefix(e.UserAgent, operatorAgent) {
				k := fmt.Sprintf("%s %s %d", e.Verb, e.Object.Subresource, e.Code)
				if e.Code >= 400 || e.Verb == "get" || e.Verb == "watch" {
					k += " " + e.Object.Resource + " " + e.Object.Name
				}
				hist[k]++
			}
		}
		for _, k := range slices.Sorted(maps.Keys(hist)) {
			fmt.Println(hist[k], k)
		}
	}
	show()
	fmt.Println("=== update")
	begin = time.Now()
	p.update(configv1.Update{Image: r.to.ByDigest()})
	p.await("4.23.0 to complete", 3*time.Minute, completed("4.23.0"))
	time.Sleep(3 * time.Second)
	show()
}
