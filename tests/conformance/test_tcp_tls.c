/* TCP with TLS: the suite, with one connection and with several. */
#include "tests/conformance/conformance.h"
#include "tests/support/certificates.h"

int main(void)
{
    struct certificates certificates;
    certificates_init(&certificates);
    certificates_make(&certificates, (struct certificate_wish){.name = "authority"});
    certificates_make(&certificates, (struct certificate_wish){
                                         .name = "member", .issuer = "authority", .dns = "job.x"});
    struct rig_transport one = {.name = "tcp with TLS", .transports = "tcp"};
    certificates_choose(&certificates, "member", "authority", &one.options);
    one.options.tls_name = "job.x";
    struct rig_transport three = one;
    three.name = "tcp with TLS, 3 connections";
    three.options.tcp_connections = 3;
    int failed = muster_conformance_run(&one);
    failed += muster_conformance_run(&three);
    certificates_finish(&certificates);
    return failed;
}
