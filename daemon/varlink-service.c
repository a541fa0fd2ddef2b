/* SPDX-License-Identifier: MIT */
/*
 * org.varlink.service: the interface that every Varlink server has.
 *
 * Our PermissionDenied carries a text beside what other services send, as a person who may not do something
 * wants to know who may; clients that do not look for it do not notice.
 */
#include <json-c/json.h>
#include <string.h>

#include "basic/text.h"
#include "varlink-internal.h"

static const char service_description[] =
    "# What every Varlink service can say about itself.\n"
    "interface org.varlink.service\n"
    "\n"
    "# Who made the service, and the interfaces that it has.\n"
    "method GetInfo() -> (\n"
    "  vendor: string,\n"
    "  product: string,\n"
    "  version: string,\n"
    "  url: string,\n"
    "  interfaces: []string\n"
    ")\n"
    "\n"
    "# The text of one of these interfaces.\n"
    "method GetInterfaceDescription(interface: string) -> (description: string)\n"
    "\n"
    "# There is no such interface here.\n"
    "error InterfaceNotFound (interface: string)\n"
    "\n"
    "# The interface has no such method.\n"
    "error MethodNotFound (method: string)\n"
    "\n"
    "# The interface has the method, but this service does not do it.\n"
    "error MethodNotImplemented (method: string)\n"
    "\n"
    "# A parameter is unknown, missing, there twice, or of the wrong type or value.\n"
    "error InvalidParameter (parameter: string)\n"
    "\n"
    "# The caller may not do that; text says who may.\n"
    "error PermissionDenied (text: ?string)\n"
    "\n"
    "# The method sends several replies: it must be called with more.\n"
    "error ExpectedMore ()\n";

/* Interfaces in the order in which they were added. */
static void service_get_info(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct varlink_server *s = userdata;
    struct json_object *o = varlink_object_with("vendor", s->service.vendor);
    struct json_object *interfaces = json_object_new_array();

    (void)json_object_object_add(o, "product", json_object_new_string(s->service.product));
    (void)json_object_object_add(o, "version", json_object_new_string(s->service.version));
    (void)json_object_object_add(o, "url", json_object_new_string(s->service.url));
    for (size_t i = 0; i < s->n_interfaces; i++)
        (void)json_object_array_add(interfaces, json_object_new_string(s->interfaces[i].interface->name));
    (void)json_object_object_add(o, "interfaces", interfaces);
    (void)varlink_call_reply(call, o);
}

struct description_parameters {
    const char *interface;
};

static const struct varlink_field description_fields[] = {
    {"interface", VARLINK_STRING, varlink_set_string, offsetof(struct description_parameters, interface),
     true},
    {},
};

/* The text as it stands in the source: comments are what it is read for. */
static void service_get_description(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct description_parameters *p = parameters;
    const struct varlink_registration *found;

    found = varlink_server_find_interface(userdata, p->interface, strlen(p->interface));
    if (found)
        (void)varlink_call_reply(call, varlink_object_with("description", found->interface->description));
    else
        (void)varlink_call_error(call, VARLINK_ERROR_INTERFACE_NOT_FOUND,
                                 varlink_object_with("interface", text_quote(p->interface).text));
}

static const struct varlink_method service_methods[] = {
    {"GetInfo", NULL, 0, false, service_get_info},
    {"GetInterfaceDescription", description_fields, sizeof(struct description_parameters), false,
     service_get_description},
    {},
};

const struct varlink_interface varlink_service_interface = {
    .name = "org.varlink.service",
    .description = service_description,
    .methods = service_methods,
};
