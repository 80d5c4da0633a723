// The pinned release of go-ceph whose test suite tests/interop/test_go_ceph.py compiles. To change it: edit the version,
// `go test -mod=mod -c -tags pacific,ceph_preview -o /dev/null github.com/ceph/go-ceph/rados`, commit go.sum, and make
// stock-passes.txt anew on stock daemons.
module go-ceph-suite

go 1.25.0

require github.com/ceph/go-ceph v0.40.0
