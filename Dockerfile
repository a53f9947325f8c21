# The operator's image, which release images are built on (cvo release new --to-image-base). `make image` builds it, also
# without a container engine.
FROM docker.io/library/golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
# The definitions of ClusterVersion and ClusterOperator come from the API module into manifests/, before the binary,
# which embeds them.
RUN go generate ./manifests \
 && CGO_ENABLED=0 go build -trimpath \
      -ldflags "-s -w -X github.com/cluster-version/cvo/pkg/cli.version=$VERSION" -o /out/cvo ./cmd/cvo \
 && mkdir /out/manifests && cp manifests/0000_*.yaml /out/manifests/

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/cvo /cvo
COPY --from=build /out/manifests /manifests
USER 65532:65532
ENTRYPOINT ["/cvo"]
