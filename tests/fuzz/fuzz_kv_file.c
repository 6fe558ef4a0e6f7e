/* Fuzz target of the file of conversations (memd/host/kv_file.h): any bytes as the file that memd
 * finds. It opens, perhaps as a new one; what is left of it can be found, read, replaced and
 * dropped. */
#include "memd/host/kv_file.h"

#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input changes a file that has two pages: pieces of offset (2 bytes), length (1 byte), bytes.
 * An input that begins with a byte of 255 is the whole file. */
enum {
    PAGE_BYTES = 4096,
    SLOTS = 3,
    FILE_BYTES = KV_STORE_BLOCK + SLOTS * (KV_STORE_BLOCK + PAGE_BYTES)
};

static char folder[64], path[96];
static uint8_t whole[FILE_BYTES], changed[FILE_BYTES];
static size_t whole_bytes;

static void require(bool holds)
{
    if (!holds)
        abort();
}

static const struct kv_file_options *options(void)
{
    static struct kv_file_options o = {.dir = folder,
                                       .model = 1,
                                       .version = 5,
                                       .page_bytes = PAGE_BYTES,
                                       .most_bytes = FILE_BYTES};
    return &o;
}

static void put(struct kv_file *f, uint64_t key, uint64_t parent)
{
    uint8_t bytes[PAGE_BYTES];
    struct kv_store_page page = {.key = key, .parent_key = parent, .n = 64, .used_s = key};
    memset(bytes, (int)key, sizeof bytes);
    kv_file_put(f, &page, bytes, NULL, NULL);
}

static void remove_folder(void)
{
    char aside[104];
    snprintf(aside, sizeof aside, "%s.bad", path);
    unlink(path);
    unlink(aside);
    rmdir(folder);
}

static void begin(void)
{
    struct kv_file f;
    struct error e;
    log_init("fuzz", LOG_LEVEL_ERROR);
    snprintf(folder, sizeof folder, "/dev/shm/moed-fuzz-kv-%d", (int)getpid());
    snprintf(path, sizeof path, "%s/%016x.kv", folder, 1);
    require(mkdir(folder, 0700) == 0);
    atexit(remove_folder);
    require(kv_file_open(&f, options(), &e) == ERROR_OK);
    put(&f, 17, 3);
    put(&f, 18, 17);
    kv_file_close(&f);
    FILE *file = fopen(path, "rb");
    require(file != NULL);
    whole_bytes = fread(whole, 1, sizeof whole, file);
    fclose(file);
}

static size_t make(const uint8_t *data, size_t size)
{
    if (size && data[0] == 255) {
        memcpy(changed, data + 1, size - 1 < FILE_BYTES ? size - 1 : FILE_BYTES);
        return size - 1 < FILE_BYTES ? size - 1 : FILE_BYTES;
    }
    memcpy(changed, whole, whole_bytes);
    while (size >= 3) {
        size_t at = (size_t)data[0] | (size_t)data[1] << 8, n = data[2];
        data += 3;
        size -= 3;
        n = n < size ? n : size;
        for (size_t i = 0; i < n && at + i < whole_bytes; i++)
            changed[at + i] = data[i];
        data += n;
        size -= n;
    }
    return whole_bytes;
}

static void use(struct kv_file *f)
{
    uint8_t bytes[PAGE_BYTES];
    struct kv_store_page page;
    struct kv_store index;
    require(!kv_store_attach(&index, f->region.base, f->region.bytes, f->read_fd, NULL));
    uint32_t slot = 0, n = 0;
    for (; kv_store_next(&index, 17, &slot, &page) && n <= SLOTS; slot++, n++)
        if (kv_store_read(&index, slot, &page, bytes))
            kv_file_touch(f, slot, 99);
    require(n <= SLOTS && f->n_used <= SLOTS);
    slot = kv_file_find(f, 3, 17);
    require(slot == UINT32_MAX || slot < SLOTS);
    for (uint64_t key = 20; key < 20 + SLOTS; key++)
        put(f, key, 3);
    require(f->n_used <= SLOTS);
    kv_file_clear(f);
    require(f->n_used == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv_file f;
    struct error e = {0};
    if (!whole_bytes)
        begin();
    size_t bytes = make(data, size);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    require(fd >= 0 && write(fd, changed, bytes) == (ssize_t)bytes);
    close(fd);
    enum error_code code = kv_file_open(&f, options(), &e);
    require(!code || e.text[0]);
    if (!code)
        use(&f);
    kv_file_close(&f);
    return 0;
}
