"""Appends the lines of standard input to an object, through a gateway. Needs no package."""

import json
import os
import sys
import urllib.error
import urllib.request

GATEWAY = os.environ.get('FENCED_URL', 'http://127.0.0.1:8080')
NAME = sys.argv[1] if len(sys.argv) > 1 else 'journal'


def ask(method, path, body=None, **headers):
    """Returns status, headers and body. An HTTP error is an answer, too."""
    headers = {name.replace('_', '-'): value for name, value in headers.items()}
    if 'FENCED_API_KEY' in os.environ:
        headers['Authorization'] = 'Bearer ' + os.environ['FENCED_API_KEY']
    request = urllib.request.Request(GATEWAY + path, method=method, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.headers, problem.read()


def acquire():
    """Waits for the lease of the object, and returns its token, as the gateway signed it."""
    while True:
        body = json.dumps({'ttlMs': 5_000, 'waitMs': 10_000}).encode()
        status, _, body = ask('POST', '/v1/leases/' + NAME, body, Content_Type='application/json')
        if status == 201:
            return json.loads(body)['token']
        if status != 409:  # held: another program has it
            sys.exit(body.decode())


def append(token, line):
    status, headers, present = ask('GET', '/v1/objects/' + NAME)
    # The condition refuses a write based on an old value. The token refuses a late holder.
    condition = {'If_Match': headers['ETag']} if status == 200 else {'If_None_Match': '*'}
    content = (present if status == 200 else b'') + line.encode()
    status, _, body = ask('PUT', '/v1/objects/' + NAME, content, Fencing_Token=token,
                          Content_Type='text/plain', **condition)
    if status != 200:
        sys.exit('refused: ' + json.loads(body)['type'])


token = acquire()
print('holds the lease', flush=True)
for line in sys.stdin:
    append(token, line)
    print('has written', line.strip(), flush=True)
