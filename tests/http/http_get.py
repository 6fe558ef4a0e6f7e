"""The status of one GET, or its body. usage: http_get.py PORT|tls:PORT|/SOCKET PATH [--body] [HEADER]"""
import http.client
import socket
import ssl
import sys

where, path, *headers = sys.argv[1:]
body = "--body" in headers
headers = [h for h in headers if h != "--body"]
if where.startswith("/"):
    s = socket.socket(socket.AF_UNIX)
    s.connect(where)
else:
    s = socket.create_connection(("127.0.0.1", int(where.removeprefix("tls:"))), timeout=60)
if where.startswith("tls:"):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    s = context.wrap_socket(s)
s.settimeout(60)
s.sendall("\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]).encode())
if body:
    reply = http.client.HTTPResponse(s)
    reply.begin()
    sys.stdout.buffer.write(reply.read())
else:
    print(s.recv(4096).split()[1].decode())
