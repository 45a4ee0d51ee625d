/* The models, each by the rule that its layers follow: ResNet-50 (torchvision), BERT-base for
 * pre-training and GPT-2 small (their authors' code, tied weights once), VGG-16 (torchvision). */
#include "worker/cli/bench/step/models.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 768, INNER_WIDTH = 3072, LAYERS = 12 }; /* of BERT-base and of GPT-2 small */

/* Building ------------------------------------------------------------------------------------ */

/* Models are fixed and small, except for "ones", whose count is checked. */
static void add(struct muster_model *model, uint32_t elements, const char *name)
{
    struct muster_model_tensor *tensor = &model->tensors[model->count++];
    (void)snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->elements = elements;
    model->elements += elements;
}

/* A part of a model that is repeated with a number in its name. */
struct part {
    uint32_t elements;
    const char *name; /* after the number */
};

static void add_parts(struct muster_model *model, const char *prefix, const struct part *parts,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char name[MUSTER_MODEL_NAME_SIZE];
        (void)snprintf(name, sizeof name, "%s%s", prefix, parts[i].name);
        add(model, parts[i].elements, name);
    }
}

#define ADD_PARTS(model, prefix, parts) \
    add_parts((model), (prefix), (parts), sizeof(parts) / sizeof((parts)[0]))

/* Twelve layers that are alike, the last one first. */
static void add_layers(struct muster_model *model, const char *prefix, const struct part *parts,
                       size_t count)
{
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        char numbered[MUSTER_MODEL_NAME_SIZE];
        (void)snprintf(numbered, sizeof numbered, "%s%d.", prefix, layer);
        add_parts(model, numbered, parts, count);
    }
}

/* ResNet-50 ----------------------------------------------------------------------------------- */

/* A bottleneck block: 1 x 1 from `in` to `width` channels, 3 x 3, 1 x 1 to four times as many; the
 * first block of a stage also changes the shape of what passes it by. */
static void add_bottleneck(struct muster_model *model, const char *prefix, uint32_t width,
                           uint32_t in)
{
    const uint32_t out = 4 * width;
    const struct part passing[] = {{out, "downsample.1.bias"},
                                   {out, "downsample.1.weight"},
                                   {out * in, "downsample.0.weight"}};
    const struct part block[] = {
        {out, "bn3.bias"},   {out, "bn3.weight"},   {out * width, "conv3.weight"},
        {width, "bn2.bias"}, {width, "bn2.weight"}, {9 * width * width, "conv2.weight"},
        {width, "bn1.bias"}, {width, "bn1.weight"}, {width * in, "conv1.weight"},
    };
    if (in != out) {
        ADD_PARTS(model, prefix, passing);
    }
    ADD_PARTS(model, prefix, block);
}

static void add_resnet50(struct muster_model *model)
{
    static const struct {
        uint32_t width, blocks, first_in;
    } stages[] = {{64, 3, 64}, {128, 4, 256}, {256, 6, 512}, {512, 3, 1024}};
    const struct part first[] = {{64, "bn1.bias"}, {64, "bn1.weight"}, {9408, "conv1.weight"}};
    const struct part last[] = {{1000, "fc.bias"}, {2048 * 1000, "fc.weight"}};
    ADD_PARTS(model, "", last);
    for (uint32_t stage = 4; stage > 0; stage--) {
        uint32_t width = stages[stage - 1].width;
        for (uint32_t block = stages[stage - 1].blocks; block > 0; block--) {
            char prefix[MUSTER_MODEL_NAME_SIZE];
            (void)snprintf(prefix, sizeof prefix, "layer%" PRIu32 ".%" PRIu32 ".", stage,
                           block - 1);
            add_bottleneck(model, prefix, width,
                           block == 1 ? stages[stage - 1].first_in : 4 * width);
        }
    }
    ADD_PARTS(model, "", first);
}

/* BERT and GPT-2 ------------------------------------------------------------------------------ */

static void add_bert(struct muster_model *model)
{
    static const struct part heads[] = {{2, "cls.seq_relationship.bias"},
                                        {2 * WIDTH, "cls.seq_relationship.weight"},
                                        {30522, "cls.predictions.bias"},
                                        {WIDTH, "cls.predictions.transform.LayerNorm.bias"},
                                        {WIDTH, "cls.predictions.transform.LayerNorm.weight"},
                                        {WIDTH, "cls.predictions.transform.dense.bias"},
                                        {WIDTH * WIDTH, "cls.predictions.transform.dense.weight"},
                                        {WIDTH, "pooler.dense.bias"},
                                        {WIDTH * WIDTH, "pooler.dense.weight"}};
    static const struct part layer[] = {{WIDTH, "output.LayerNorm.bias"},
                                        {WIDTH, "output.LayerNorm.weight"},
                                        {WIDTH, "output.dense.bias"},
                                        {WIDTH * INNER_WIDTH, "output.dense.weight"},
                                        {INNER_WIDTH, "intermediate.dense.bias"},
                                        {WIDTH * INNER_WIDTH, "intermediate.dense.weight"},
                                        {WIDTH, "attention.output.LayerNorm.bias"},
                                        {WIDTH, "attention.output.LayerNorm.weight"},
                                        {WIDTH, "attention.output.dense.bias"},
                                        {WIDTH * WIDTH, "attention.output.dense.weight"},
                                        {WIDTH, "attention.self.value.bias"},
                                        {WIDTH * WIDTH, "attention.self.value.weight"},
                                        {WIDTH, "attention.self.key.bias"},
                                        {WIDTH * WIDTH, "attention.self.key.weight"},
                                        {WIDTH, "attention.self.query.bias"},
                                        {WIDTH * WIDTH, "attention.self.query.weight"}};
    static const struct part embeddings[] = {{WIDTH, "LayerNorm.bias"},
                                             {WIDTH, "LayerNorm.weight"},
                                             {512 * WIDTH, "position_embeddings.weight"},
                                             {2 * WIDTH, "token_type_embeddings.weight"},
                                             {30522 * WIDTH, "word_embeddings.weight"}};
    ADD_PARTS(model, "", heads);
    add_layers(model, "encoder.layer.", layer, sizeof layer / sizeof layer[0]);
    ADD_PARTS(model, "embeddings.", embeddings);
}

static void add_gpt2(struct muster_model *model)
{
    static const struct part head[] = {{WIDTH, "bias"}, {WIDTH, "weight"}};
    static const struct part layer[] = {{WIDTH, "mlp.c_proj.bias"},
                                        {WIDTH * INNER_WIDTH, "mlp.c_proj.weight"},
                                        {INNER_WIDTH, "mlp.c_fc.bias"},
                                        {WIDTH * INNER_WIDTH, "mlp.c_fc.weight"},
                                        {WIDTH, "ln_2.bias"},
                                        {WIDTH, "ln_2.weight"},
                                        {WIDTH, "attn.c_proj.bias"},
                                        {WIDTH * WIDTH, "attn.c_proj.weight"},
                                        {3 * WIDTH, "attn.c_attn.bias"},
                                        {WIDTH * 3 * WIDTH, "attn.c_attn.weight"},
                                        {WIDTH, "ln_1.bias"},
                                        {WIDTH, "ln_1.weight"}};
    static const struct part embeddings[] = {{1024 * WIDTH, "wpe.weight"},
                                             {50257 * WIDTH, "wte.weight"}};
    ADD_PARTS(model, "ln_f.", head);
    add_layers(model, "h.", layer, sizeof layer / sizeof layer[0]);
    ADD_PARTS(model, "", embeddings);
}

/* VGG-16 -------------------------------------------------------------------------------------- */

static void add_vgg16(struct muster_model *model)
{
    static const struct {
        const char *name;
        uint32_t in, out;
    } layers[] = {
        {"classifier.6", 4096, 1000},  {"classifier.3", 4096, 4096},  {"classifier.0", 25088, 4096},
        {"features.28", 9 * 512, 512}, {"features.26", 9 * 512, 512}, {"features.24", 9 * 512, 512},
        {"features.21", 9 * 512, 512}, {"features.19", 9 * 512, 512}, {"features.17", 9 * 256, 512},
        {"features.14", 9 * 256, 256}, {"features.12", 9 * 256, 256}, {"features.10", 9 * 128, 256},
        {"features.7", 9 * 128, 128},  {"features.5", 9 * 64, 128},   {"features.2", 9 * 64, 64},
        {"features.0", 9 * 3, 64},
    };
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        const struct part parts[] = {{layers[i].out, ".bias"},
                                     {layers[i].in * layers[i].out, ".weight"}};
        ADD_PARTS(model, layers[i].name, parts);
    }
}

/* Finding ------------------------------------------------------------------------------------- */

static const char ones[] = "ones:";

/* 0: the name is not "ones:" and a number of tensors. */
static size_t count_ones(const char *name)
{
    char *end = NULL;
    if (strncmp(name, ones, strlen(ones)) != 0) {
        return 0;
    }
    unsigned long count = strtoul(name + strlen(ones), &end, 10);
    bool good = name[strlen(ones)] >= '1' && name[strlen(ones)] <= '9' && *end == '\0';
    return good && count <= MUSTER_MODEL_TENSORS_MAX ? count : 0;
}

static void add_ones(struct muster_model *model, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char name[MUSTER_MODEL_NAME_SIZE];
        (void)snprintf(name, sizeof name, "one.%zu", i);
        add(model, 1, name);
    }
}

muster_status muster_model_init(const char *name, struct muster_model *ret_model)
{
    static const struct {
        const char *name;
        void (*add)(struct muster_model *model);
    } rows[] = {
        {"resnet50", add_resnet50}, {"bert", add_bert}, {"gpt2", add_gpt2}, {"vgg16", add_vgg16}};
    size_t row = 0;
    while (row < sizeof rows / sizeof rows[0] && strcmp(name, rows[row].name) != 0) {
        row++;
    }
    size_t count = count_ones(name);
    if (row == sizeof rows / sizeof rows[0] && count == 0) {
        return muster_error_set(
            MUSTER_INVALID,
            "--model: \"%.32s\" is none of resnet50, bert, gpt2, vgg16 and ones:N (N up to %d)",
            name, MUSTER_MODEL_TENSORS_MAX);
    }
    struct muster_model model = {.tensors =
                                     calloc(MUSTER_MODEL_TENSORS_MAX, sizeof model.tensors[0])};
    if (model.tensors == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the tensors of a model");
    }
    if (count > 0) {
        add_ones(&model, count);
    } else {
        rows[row].add(&model);
    }
    *ret_model = model;
    return MUSTER_OK;
}

void muster_model_finish(struct muster_model *model)
{
    free(model->tensors);
    *model = (struct muster_model){.count = 0};
}
