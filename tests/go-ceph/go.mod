// The pinned release of go-ceph whose test suites tests/interop/test_go_ceph.py and test_go_ceph_rbd.py compile. To change it:
// edit the version, `go test -mod=mod -c -tags pacific,ceph_preview -o /dev/null github.com/ceph/go-ceph/rados`, commit go.sum,
// and make the lists of cases that pass on stock daemons anew: `tests/interop/go_ceph.py rados rbd rbd/admin`.
module go-ceph-suite

go 1.25.0

require github.com/ceph/go-ceph v0.40.0
