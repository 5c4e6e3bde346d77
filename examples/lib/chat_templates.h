// chat_templates.h: the formats of chats and the templates that have them, made by chat_templates.py. chat.h says what
// the fields mean. A model behind a digest is one whose template was compared.
#ifndef CHAT_TEMPLATES_H
#define CHAT_TEMPLATES_H

#include "examples/lib/chat.h"

static const chat_format chat_format_list[] = {
    {.name = "llama3",
     .alone = CHAT_BOS "<|start_header_id|>user<|end_header_id|>\n\n",
     .system = CHAT_BOS "<|start_header_id|>system<|end_header_id|>\n\n",
     .then = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .reply = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .next = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .answer = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .trim = {3, 3, 3}},
    {.name = "llama3.1",
     .alone = CHAT_BOS
     "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: " CHAT_DATE
     "\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .system = CHAT_BOS
     "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: " CHAT_DATE
     "\n\n",
     .then = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .reply = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .next = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .answer = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .date = "26 Jul 2024",
     .trim = {3, 3, 3}},
    {.name = "llama3.2",
     .alone = CHAT_BOS
     "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: " CHAT_DATE
     "\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .system = CHAT_BOS
     "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: " CHAT_DATE
     "\n\n",
     .then = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .reply = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .next = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .answer = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .date = "26 Jul 2024",
     .form = "%d %b %Y",
     .trim = {3, 3, 3}},
    {.name = "llama2",
     .alone = CHAT_BOS "[INST] ",
     .system = CHAT_BOS "[INST] <<SYS>>\n",
     .then = "\n<</SYS>>\n\n",
     .reply = " [/INST] ",
     .next = " " CHAT_EOS CHAT_BOS "[INST] ",
     .answer = " [/INST]",
     .trim = {0, 3, 3},
     .together = 1,
     .blank = 2},
    {.name = "chatml",
     .alone = "<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "chatml-bos",
     .alone = CHAT_BOS "<|im_start|>user\n",
     .system = CHAT_BOS "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "qwen2",
     .alone = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "qwen2.5",
     .alone = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
              "assistant.<|im_end|>\n<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "qwen3",
     .alone = "<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n",
     .cut = 3,
     .where = 2,
     .words = {"<tool_response>"}},
    {.name = "qwen3-thinking",
     .alone = "<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n<think>\n",
     .cut = 3,
     .where = 2,
     .words = {"<tool_response>"}},
    {.name = "mistral-0.1",
     .alone = CHAT_BOS "[INST] ",
     .reply = " [/INST]",
     .next = CHAT_EOS " [INST] ",
     .answer = " [/INST]"},
    {.name = "mistral-0.2",
     .alone = CHAT_BOS "[INST] ",
     .reply = " [/INST]",
     .next = CHAT_EOS "[INST] ",
     .answer = " [/INST]"},
    {.name = "mistral-0.3",
     .alone = CHAT_BOS "[INST] ",
     .reply = "[/INST]",
     .next = CHAT_EOS "[INST] ",
     .answer = "[/INST]",
     .empty = 2},
    {.name = "mistral-nemo",
     .alone = CHAT_BOS "[INST]",
     .system = CHAT_BOS "[INST]",
     .then = "\n\n",
     .reply = "[/INST]",
     .next = CHAT_EOS "[INST]",
     .answer = "[/INST]",
     .late = 1},
    {.name = "zephyr",
     .alone = "<|user|>\n",
     .system = "<|system|>\n",
     .then = CHAT_EOS "\n<|user|>\n",
     .reply = CHAT_EOS "\n<|assistant|>\n",
     .next = CHAT_EOS "\n<|user|>\n",
     .answer = CHAT_EOS "\n<|assistant|>\n"},
    {.name = "phi3",
     .alone = CHAT_BOS "<|user|>\n",
     .reply = "<|end|>\n<|assistant|>\n",
     .next = "<|end|>\n<|user|>\n",
     .answer = "<|end|>\n<|assistant|>\n",
     .empty = 2},
    {.name = "phi3.5",
     .alone = "<|user|>\n",
     .system = "<|system|>\n",
     .then = "<|end|>\n<|user|>\n",
     .reply = "<|end|>\n<|assistant|>\n",
     .next = "<|end|>\n<|user|>\n",
     .answer = "<|end|>\n<|assistant|>\n",
     .empty = 1},
    {.name = "phi4",
     .alone = "<|im_start|>user<|im_sep|>",
     .system = "<|im_start|>system<|im_sep|>",
     .then = "<|im_end|><|im_start|>user<|im_sep|>",
     .reply = "<|im_end|><|im_start|>assistant<|im_sep|>",
     .next = "<|im_end|><|im_start|>user<|im_sep|>",
     .answer = "<|im_end|><|im_start|>assistant<|im_sep|>"},
    {.name = "granite3",
     .alone = "<|start_of_role|>system<|end_of_role|>Knowledge Cutoff Date: April 2024. Today's Date: " CHAT_DATE
              ". You are Granite, developed by IBM. You are a helpful AI "
              "assistant.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .system = "<|start_of_role|>system<|end_of_role|>",
     .then = "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .reply = "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     .next = "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .answer = "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     .form = "%B %d, %Y"},
    {.name = "smollm2",
     .alone = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
              "Face<|im_end|>\n<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "smollm3",
     .alone = "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nReasoning Mode: /think\n\n## "
              "Custom Instructions\n\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face. Your role "
              "as an assistant involves thoroughly exploring questions through a systematic thinking process before "
              "providing the final precise and accurate solutions. This requires engaging in a comprehensive cycle of "
              "analysis, summarizing, exploration, reassessment, reflection, backtracking, and iteration to develop "
              "well-considered thinking process. Please structure your response into two main sections: Thought and "
              "Solution using the specified format: <think> Thought section </think> Solution section. In the Thought "
              "section, detail your reasoning process in steps. Each step should include detailed considerations such "
              "as analysing questions, summarizing relevant findings, brainstorming new ideas, verifying the accuracy "
              "of the current steps, refining any errors, and revisiting previous steps. In the Solution section, "
              "based on various attempts, explorations, and reflections from the Thought section, systematically "
              "present the final solution that you deem correct. The Solution section should be logical, accurate, and "
              "concise and detail necessary steps needed to reach the conclusion.\n\n<|im_end|>\n<|im_start|>user\n",
     .system = "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nReasoning Mode: /think\n\n## "
               "Custom Instructions\n\n",
     .then = "\n\n<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n",
     .trim = {2, 0, 0},
     .empty = 2,
     .cut = 4,
     .where = 1,
     .words = {"/think", "/no_think"}},
    {.name = "seed-oss",
     .alone = "<seed:bos>user\n",
     .system = "<seed:bos>system\n",
     .then = "<seed:eos><seed:bos>user\n",
     .reply = "<seed:eos><seed:bos>assistant\n",
     .next = "<seed:eos><seed:bos>user\n",
     .answer = "<seed:eos><seed:bos>assistant\n",
     .trim = {0, 0, 3},
     .blank = 6},
    {.name = "deepseek-r1",
     .alone = CHAT_BOS "<｜User｜>",
     .system = CHAT_BOS,
     .then = "<｜User｜>",
     .reply = "<｜Assistant｜>",
     .next = "<｜end▁of▁sentence｜><｜User｜>",
     .answer = "<｜Assistant｜><think>\n</think>",
     .cut = 1},
    {.name = "text", .alone = CHAT_BOS, .system = CHAT_BOS, .then = " ", .reply = "", .next = " ", .answer = ""},
    {.name = "alphamonarch-7b",
     .alone = CHAT_BOS "user\n",
     .system = CHAT_BOS "system\n",
     .then = CHAT_EOS "\n" CHAT_BOS "user\n",
     .reply = CHAT_EOS "\n" CHAT_BOS "assistant\n",
     .next = CHAT_EOS "\n" CHAT_BOS "user\n",
     .answer = CHAT_EOS "\n" CHAT_BOS "assistant\n"},
    {.name = "apriel-1.5",
     .alone = CHAT_BOS "<|system|>\nYou are a thoughtful and systematic AI assistant built by ServiceNow Language "
                       "Models (SLAM) lab. Before providing an answer, analyze the problem carefully and present your "
                       "reasoning step by step. After explaining your thought process, provide the final solution in "
                       "the following format: [BEGIN FINAL RESPONSE] ... [END FINAL RESPONSE].\n<|end|>\n<|user|>\n",
     .system = CHAT_BOS "<|system|>\nYou are a thoughtful and systematic AI assistant built by ServiceNow Language "
                        "Models (SLAM) lab. Before providing an answer, analyze the problem carefully and present your "
                        "reasoning step by step. After explaining your thought process, provide the final solution in "
                        "the following format: [BEGIN FINAL RESPONSE] ... [END FINAL RESPONSE].",
     .then = "\n<|end|>\n<|user|>\n",
     .reply = "\n<|end|>\n<|assistant|>\n",
     .next = "\n<|end|>\n" CHAT_EOS "<|user|>\n",
     .answer = "\n<|end|>\n<|assistant|>\n"},
    {.name = "bielik-11b-v3.0-instruct",
     .alone = CHAT_BOS "<|im_start|>user\n",
     .system = CHAT_BOS "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n",
     .trim = {0, 0, 1},
     .blank = 6,
     .empty = 1,
     .where = 4,
     .words = {"<think>"}},
    {.name = "codellama-70b-instruct",
     .alone = "<s>Source: user\n\n ",
     .system = "<s>Source: system\n\n ",
     .then = " <step> Source: user\n\n ",
     .reply = " <step> Source: assistant\n\n ",
     .next = " <step> Source: user\n\n ",
     .answer = " <step> Source: assistant\nDestination: user\n\n ",
     .trim = {3, 3, 3}},
    {.name = "deepseek-r1-v2",
     .alone = CHAT_BOS "<｜User｜>",
     .system = CHAT_BOS,
     .then = "<｜User｜>",
     .reply = "<｜Assistant｜>",
     .next = "<｜end▁of▁sentence｜><｜User｜>",
     .answer = "<｜Assistant｜>",
     .cut = 1},
    {.name = "deepseek-r1-distill",
     .alone = CHAT_BOS "<｜User｜>",
     .system = CHAT_BOS,
     .then = "<｜User｜>",
     .reply = "<｜Assistant｜>",
     .next = "<｜end▁of▁sentence｜><｜User｜>",
     .answer = "<｜Assistant｜><think>\n",
     .cut = 1},
    {.name = "ministral-3-14b-reasoning-2512",
     .alone = CHAT_BOS
     "[SYSTEM_PROMPT]# HOW YOU SHOULD THINK AND ANSWER\n\nFirst draft your thinking process (inner monologue) until "
     "you arrive at a response. Format your response using Markdown, and use LaTeX for any mathematical equations. "
     "Write both your thoughts and the response in the same language as the input.\n\nYour thinking process must "
     "follow the template below:[THINK]Your thoughts or/and draft, like working through an exercise on scratch paper. "
     "Be as casual and as long as you want until you are confident to generate the response to the user.[/THINK]Here, "
     "provide a self-contained response.[/SYSTEM_PROMPT][INST]",
     .system = CHAT_BOS "[SYSTEM_PROMPT]",
     .then = "[/SYSTEM_PROMPT][INST]",
     .reply = "[/INST]",
     .next = CHAT_EOS "[INST]",
     .answer = "[/INST]",
     .blank = 6},
    {.name = "mistral-7b-instruct-v0.2",
     .alone = CHAT_BOS " [INST] ",
     .system = CHAT_BOS " [INST] ",
     .then = "\n\n",
     .reply = " [/INST] ",
     .next = CHAT_EOS " [INST] ",
     .answer = " [/INST]"},
    {.name = "mistral-7b-instruct-v0.3",
     .alone = CHAT_BOS " [INST] ",
     .reply = " [/INST] ",
     .next = " " CHAT_EOS " [INST] ",
     .answer = " [/INST]",
     .empty = 2},
    {.name = "mistral-large-instruct-2407",
     .alone = CHAT_BOS "[INST] ",
     .system = CHAT_BOS "[INST] ",
     .then = "\n\n",
     .reply = "[/INST] ",
     .next = CHAT_EOS "[INST] ",
     .answer = "[/INST]",
     .trim = {0, 0, 3},
     .late = 1},
    {.name = "mistral-large-instruct-2411",
     .alone = CHAT_BOS "[INST] ",
     .system = CHAT_BOS "[SYSTEM_PROMPT] ",
     .then = "[/SYSTEM_PROMPT][INST] ",
     .reply = "[/INST] ",
     .next = CHAT_EOS "[INST] ",
     .answer = "[/INST]"},
    {.name = "mistral-small-3.2-24b-instruct-2506",
     .alone = CHAT_BOS
     "[SYSTEM_PROMPT]You are Mistral Small 3, a Large Language Model (LLM) created by Mistral AI, a French startup "
     "headquartered in Paris.\nYour knowledge base was last updated on 2023-10-01. The current date is " CHAT_DATE
     ".\n\nWhen you're not sure about some information or when the user's request requires up-to-date or specific "
     "data, you must use the available tools to fetch the information. Do not hesitate to use tools whenever they can "
     "provide a more accurate or complete response. If no relevant tools are available, then clearly state that you "
     "don't have the information and avoid making up anything.\n\nIf the user's question is not clear, ambiguous, or "
     "does not provide enough context for you to accurately answer the question, you do not try to answer it right "
     "away and you rather ask the user to clarify their request (e.g. \"What are some good restaurants around me?\" => "
     "\"Where are you?\" or \"When is the next flight to Tokyo\" => \"Where do you travel from?\").\nYou are always "
     "very attentive to dates, and when asked about information at specific dates, you discard information that is at "
     "another date.\nYou follow these instructions in all languages, and always respond to the user in the language "
     "they use or request.\nNext sections describe the capabilities that you have.\n\n# WEB BROWSING "
     "INSTRUCTIONS\n\nYou cannot perform any web search or access internet to open URLs, links etc. If it seems like "
     "the user is expecting you to do so, you clarify the situation and ask the user to copy paste the text directly "
     "in the chat.\n\n# MULTI-MODAL INSTRUCTIONS\n\nYou have the ability to read images, but you cannot generate "
     "images. You also cannot transcribe audio files or videos.\nYou cannot read nor transcribe audio files or "
     "videos.\n\n# TOOL CALLING INSTRUCTIONS\n\nYou may have access to tools that you can use to fetch information or "
     "perform actions. You must use these tools in the following situations:\n\n1. When the request requires "
     "up-to-date information.\n2. When the request requires specific data that you do not have in your knowledge "
     "base.\n3. When the request involves actions that you cannot perform without tools.\n\nAlways prioritize using "
     "tools to provide the most accurate and helpful response. If tools are not available, inform the user that you "
     "cannot perform the requested action at the moment.[/SYSTEM_PROMPT][INST]",
     .system = CHAT_BOS "[SYSTEM_PROMPT]",
     .then = "[/SYSTEM_PROMPT][INST]",
     .reply = "[/INST]",
     .next = CHAT_EOS "[INST]",
     .answer = "[/INST]",
     .form = "%Y-%m-%d"},
    {.name = "orca-vicuna",
     .alone = "USER: ",
     .system = "SYSTEM: ",
     .then = "\nUSER: ",
     .reply = "\nASSISTANT: ",
     .next = "</s>\nUSER: ",
     .answer = "\nASSISTANT:"},
    {.name = "phi-3",
     .alone = "<|user|>\n",
     .system = "<|system|>\n",
     .then = "<|end|>\n<|user|>\n",
     .reply = "<|end|>\n<|assistant|>\n",
     .next = "<|end|>\n<|user|>\n",
     .answer = "<|end|>\n<|assistant|>\n"},
    {.name = "phi-3-medium-4k-instruct",
     .alone = "<|user|>\n",
     .reply = "<|end|>\n<|assistant|>\n",
     .next = "<|end|>\n<|user|>\n",
     .answer = "<|end|>\n<|assistant|>\n",
     .empty = 2},
    {.name = "phi-4-mini-instruct",
     .alone = "<|user|>",
     .system = "<|system|>",
     .then = "<|end|><|user|>",
     .reply = "<|end|><|assistant|>",
     .next = "<|end|><|user|>",
     .answer = "<|end|><|assistant|>"},
    {.name = "qwq-32b",
     .alone = "<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n<think>\n</think>",
     .cut = 5},
    {.name = "qwen1.5-0.5b-chat",
     .alone = "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "solar-10.7b-instruct-v1.0",
     .alone = "### User:\n",
     .system = "### System:\n",
     .then = "\n\n### User:\n",
     .reply = "\n\n### Assistant:\n",
     .next = "### User:\n",
     .answer = "\n\n### Assistant:\n",
     .empty = 1},
    {.name = "smaug-34b-v0.1",
     .alone = "",
     .system = "[INST] <<SYS>>\n",
     .then = "\n<</SYS>>\n\n",
     .reply = " [/INST] ",
     .next = " " CHAT_EOS CHAT_BOS "[INST] ",
     .answer = " [/INST]"},
    {.name = "smollm3-v2",
     .alone =
         "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: " CHAT_DATE
         "\nReasoning Mode: /think\n\n## Custom Instructions\n\nYou are a helpful AI assistant named SmolLM, trained "
         "by Hugging Face. Your role as an assistant involves thoroughly exploring questions through a systematic "
         "thinking process before providing the final precise and accurate solutions. This requires engaging in a "
         "comprehensive cycle of analysis, summarizing, exploration, reassessment, reflection, backtracking, and "
         "iteration to develop well-considered thinking process. Please structure your response into two main "
         "sections: Thought and Solution using the specified format: <think> Thought section </think> Solution "
         "section. In the Thought section, detail your reasoning process in steps. Each step should include detailed "
         "considerations such as analysing questions, summarizing relevant findings, brainstorming new ideas, "
         "verifying the accuracy of the current steps, refining any errors, and revisiting previous steps. In the "
         "Solution section, based on various attempts, explorations, and reflections from the Thought section, "
         "systematically present the final solution that you deem correct. The Solution section should be logical, "
         "accurate, and concise and detail necessary steps needed to reach the conclusion.\n\n<|im_start|>user\n",
     .system = "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: " CHAT_DATE
               "\nReasoning Mode: /think\n\n## Custom Instructions\n\n",
     .then = "\n\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n",
     .form = "%d %B %Y",
     .trim = {2, 0, 0},
     .empty = 2,
     .cut = 4,
     .where = 1,
     .words = {"/think", "/no_think", "/system_override"}},
    {.name = "synatra-mixtral-8x7b",
     .alone = "Below is an instruction that describes a task. Write a response that appropriately completes the "
              "request.\n\n### Instruction:\n",
     .system = "Below is an instruction that describes a task. Write a response that appropriately completes the "
               "request.\n\n",
     .then = "### Instruction:\n",
     .reply = "### Response:\n",
     .next = "### Instruction:\n",
     .answer = "### Response:\n",
     .trim = {3, 3, 3}},
    {.name = "tulu-3",
     .alone = "<|user|>\n",
     .system = "<|system|>\n",
     .then = "\n<|user|>\n",
     .reply = "\n<|assistant|>\n",
     .next = CHAT_EOS "\n<|user|>\n",
     .answer = "\n<|assistant|>\n"},
    {.name = "yandexgpt-5-lite-8b-instruct",
     .alone = "<s> Пользователь: ",
     .reply = "\n\n Ассистент: ",
     .next = "\n\n Пользователь: ",
     .answer = "\n\n Ассистент:[SEP]",
     .empty = 2},
    {.name = "yi-1.5-9b-chat",
     .alone = "<|im_start|>user\n",
     .system = "",
     .then = "<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "deepseek-coder-33b-instruct-awq",
     .alone =
         "You are an AI programming assistant, utilizing the Deepseek Coder model, developed by Deepseek Company, and "
         "you only answer questions related to computer science. For politically sensitive questions, security and "
         "privacy issues, and other non-computer science questions, you will refuse to answer.\n### Instruction:\n",
     .system =
         "You are an AI programming assistant, utilizing the Deepseek Coder model, developed by Deepseek Company, and "
         "you only answer questions related to computer science. For politically sensitive questions, security and "
         "privacy issues, and other non-computer science questions, you will refuse to answer.\n",
     .then = "### Instruction:\n",
     .reply = "\n### Response:\n",
     .next = "\n<|EOT|>\n### Instruction:\n",
     .answer = "\n### Response:\n"},
    {.name = "deepseek-coder-33b-instruct",
     .alone = CHAT_BOS
     "You are an AI programming assistant, utilizing the Deepseek Coder model, developed by Deepseek Company, and you "
     "only answer questions related to computer science. For politically sensitive questions, security and privacy "
     "issues, and other non-computer science questions, you will refuse to answer\n### Instruction:\n",
     .system = CHAT_BOS,
     .then = "### Instruction:\n",
     .reply = "\n### Response:\n",
     .next = "\n<|EOT|>\n### Instruction:\n",
     .answer = "\n### Response:\n"},
    {.name = "deepseek-llm-7b-chat",
     .alone = CHAT_BOS "User: ",
     .system = CHAT_BOS,
     .then = "\n\nUser: ",
     .reply = "\n\nAssistant: ",
     .next = CHAT_EOS "User: ",
     .answer = "\n\nAssistant:"},
    {.name = "functionary-medium-v3.1",
     .alone = CHAT_BOS "<|start_header_id|>system<|end_header_id|>\n\n\nCutting Knowledge Date: December "
                       "2023\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .system = CHAT_BOS "<|start_header_id|>system<|end_header_id|>\n\n\nCutting Knowledge Date: December "
                        "2023\n\n<|eot_id|><|start_header_id|>system<|end_header_id|>\n\n",
     .then = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .reply = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .next = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .answer = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {.name = "granite-3.0-8b-instruct",
     .alone = "<|start_of_role|>user<|end_of_role|>",
     .system = "<|start_of_role|>system<|end_of_role|>",
     .then = "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .reply = "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     .next = "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .answer = "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"},
    {.name = "h2o-danube-1.8b-chat",
     .alone = "<|prompt|>",
     .system = "<|system|>",
     .then = CHAT_EOS "<|prompt|>",
     .reply = CHAT_EOS "<|answer|>",
     .next = CHAT_EOS "<|prompt|>",
     .answer = CHAT_EOS "<|answer|>"},
    {.name = "openchat-3.5-0106",
     .alone = CHAT_BOS "GPT4 Correct User: ",
     .system = CHAT_BOS "GPT4 Correct System: ",
     .then = "<|end_of_turn|>GPT4 Correct User: ",
     .reply = "<|end_of_turn|>GPT4 Correct Assistant: ",
     .next = "<|end_of_turn|>GPT4 Correct User: ",
     .answer = "<|end_of_turn|>GPT4 Correct Assistant:"},
    {.name = "vicuna-13b-1.1",
     .alone = "USER: ",
     .system = "",
     .then = "\n\nUSER: ",
     .reply = "\nASSISTANT: ",
     .next = "</s>\nUSER: ",
     .answer = "\nASSISTANT:"},
};
enum { CHAT_NAMED = 24 };  // the first ones are many models', and have names of their own

// clang-format off
static const struct {
    char sha256[65];
    int format;
} chat_template_list[] = {
    {"4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c", 0},  // llama3: Llama-3, Llama-3-Instruct
    {"b48c47f6443892716176eb200bf4ef108f64e06ca26ed0fa8ebc0a4b3992fcb2", 0},  // llama3: Meta-Llama-3-8B-Instruct
    {"b75e17085cfc511ead6d4fab84b86ab3c168ec7a332568a91d0889cdcba94394", 0},  // llama3: Meta-Llama-3-8B-Instruct
    {"ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", 0},  // llama3: Llama-3, Llama-3-Instruct
    {"93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7", 1},  // llama3.1: Llama-3.1, Llama-3.1-8B-...
    {"d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f", 2},  // llama3.2: Llama-3.2, Llama-3.2-3B-...
    {"5dc3ab76a98f3889ad7f7af42d81259e2600c751b3fab807c1d08e9768e9d0a1", 3},  // llama2: default-llama
    {"9780fae5bfea3cfd7be37d328c6edfd296a8869be8131495bbe7eb37e780c88c", 3},  // llama2: Llama-2-13b-chat
    {"be7f8f15473ed3f98fd513d422daef97d1b101e6d3aeac3904e3a15f7807c07b", 3},  // llama2: default-llama
    {"e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf", 3},  // llama2: Llama-2-13b-chat
    {"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3", 4},  // chatml: OpenHermes-2.5-Mistral-7B,...
    {"58c1a1f04baa7adaeaba1f90267c3d57d9396f0c1f0129bdde9e76d3c6784af7", 4},  // chatml: Yi-34B-Chat, dolphin-2.5-m...
    {"64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326", 4},  // chatml: Qwen3-Instruct-2507
    {"d7b5b8c7b58f7a6bf868aa46a5f73ee976d7292f40fcb9c3e7a1defd8d235cfb", 4},  // chatml: Yi-34B-Chat, dolphin-2.5-m...
    {"eae48a3307931acb10a6fce475a36b711709672ea79ee1a9bc52f083d8b0a2af", 4},  // chatml: Qwen3-Coder
    {"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", 4},  // chatml: OpenHermes-2.5-Mistral-7B,...
    {"68268d4bc1d650084b6b70d429c28c731b651126ee7bec82cd124cc782af9d0d", 5},  // chatml-bos: Hermes-3-Llama-3.1-8B
    {"a805e50fed68938a076b07e2e602639611b50b1ced0e50f11eb92f1ba25be4dc", 5},  // chatml-bos: Hermes-3-Llama-3.1-8B
    {"0254937901f084d545e18931d7fb449f97c3dfd665f1bdd0af6f5b3fb3dd3312", 6},  // qwen2: Hammer2.1
    {"793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb", 6},  // qwen2: Qwen2-7B-Instruct
    {"f0206845c9ebc3abb4735d44f286eb81ce99238ad2accc710c6fc60e6cb8ccc8", 6},  // qwen2: Qwen2-7B-Instruct
    {"55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a", 7},  // qwen2.5: Qwen2.5, Qwen2.5-7B-Instruct
    {"483b4faebed5bad1da18c75a23ac02a60a94fb2e2ec572fc3de26f1d71509452", 8},  // qwen3: Qwen3
    {"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", 8},  // qwen3: Qwen3, Qwen3-0.6B
    {"a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8", 8},  // qwen3: Qwen3
    {"db733d157125e57af0ab7b0529d50bd2abd61315b431c53213221930db441edb", 8},  // qwen3: Qwen3-Instruct-2507
    {"0800c03b537cb0d60244f37ac6d717b06c42c4828a40853b1f9853791f9afdae", 9},  // qwen3-thinking: Qwen3-Thinking-2507
    {"7e995b379ec01747807246483647cd99030abf331653f1119e16d7ac041a3495", 10},  // mistral-0.1: Mistral-7B-Instruct-...
    {"26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7", 11},  // mistral-0.2: Mixtral, Mixtral-8x7...
    {"736dba5c1d552a0ddde5164a64792bd2a3639af3b78dff7917c2dd5d4d48e43a", 12},  // mistral-0.3: Mistral-7B-Instruct-...
    {"b00c099a0f2f0a035ce0d5c77d77d52399693f82744f96b3e00a3cb2332b94ab", 13},  // mistral-nemo: Mistral-Nemo
    {"c7a94f505398612940c13ee95070d0d152bcb7b4afbd74a06ff148a82a02851c", 13},  // mistral-nemo: Mistral-Nemo
    {"e7deee034838db2bfc7487788a3013d8a307ab69f72f3c54a85f06fd76007d4e", 13},  // mistral-nemo: Mistral-Nemo-Instru...
    {"4f39e3a4b9e3d369b42fd00d93a78f171914bb4e58ec84fc420433d7a153288a", 14},  // zephyr: TinyLlama-1.1B-Chat-v1.0,...
    {"66291cf0045c2425a3a667cf3cbb7af2b11f09e025c02f97245323ab79119362", 14},  // zephyr: TinyLlama-1.1B-Chat-v1.0,...
    {"268b6082ceb7176dc6ed80557a2f7837f9f0339592fbee677d405a553af15f88", 15},  // phi3: Phi-3-mini-4k-instruct
    {"4552eefd92474b5259a00e369ebb5989535118101ca9ddeff68c11e879bbb9dd", 15},  // phi3: Phi-3-mini-4k-instruct
    {"107f446a0c69ad81516797efae2998f51b1c8e3ea6e74253dcaff6629306bfc7", 16},  // phi3.5: Phi-3.5, Phi-3.5-mini-ins...
    {"78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90", 16},  // phi3.5: Phi-3.5, Phi-3.5-mini-ins...
    {"a41fb8727c4f1e722e53cb1ea935038a1177b8bdf09387f3b048f9da5255ef3e", 17},  // phi4: phi-4
    {"d0657ba05651bd2134160e7a9fbe40f1aa51ecb6bc2724618e34b04466291f87", 18},  // granite3: granite-3.3-2b-instruct
    {"872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788", 19},  // smollm2: SmolLM2-135M-Instruct
    {"de9cde7d1b0ca0cc87459a6673e0d12fb89c070bdb24e4a30b6e4d187b226221", 19},  // smollm2: SmolLM2-135M-Instruct
    {"cbc1d50f777ec029b33f53b23d7a224cceb65bcc8c7fac54946dbb56514e4d1e", 20},  // smollm3: SmolLM3-3B
    {"3f9e0dc4adeb8032287d0129dc75b6298fee8698a52ab41e863dbc89929330d3", 21},  // seed-oss: Seed-OSS-36B-Instruct
    {"bbe594884b44d740667ee65a70bc8d333a565eab3d63ea59f291ea73ada84ba6", 22},  // deepseek-r1: DeepSeek-R1-Distill-...
    {"62cfe6e0a2315ca950c1e8170a36a2c6ca7594a9d95c5fb5b6d87492472ba2c8", 23},  // text: tiny42
    {"396b7b76d04a4cdfd45a5a8e73e041ae66b070cda30f24c607e9b872b4a13826", 24},  // alphamonarch-7b: AlphaMonarch-7B
    {"da877606ea461c2dec8ec532808d1f53d838456fd8a1f188480e5511fa1c3062", 24},  // alphamonarch-7b: AlphaMonarch-7B
    {"156dd2c74e961f059aca24cc7b5a34f81715ed06762181c6f02155bfe78ca0c7", 25},  // apriel-1.5: Apriel-1.5
    {"a30b8c4531dda19196f35fb95ab84110dd8357acbd75eea3776c5543a70db5a9", 26},  // bielik-11b-v3.0-instruct: Bielik-...
    {"5324fdb4454c54595647891b5d637bc4eb1b70fde46ef8c7001ab20f36c8c20e", 27},  // codellama-70b-instruct: CodeLlama...
    {"75678d463085865163b4c6dbc28f7178738d992b53124ad3612304f48a983b02", 27},  // codellama-70b-instruct: CodeLlama...
    {"3564be42d3171962fc65e6a1187f991cb23b4114c15159c524c701be44da3964", 28},  // deepseek-r1-v2: DeepSeek-R1
    {"3a3036eeb96ca0e48565fc1f19b4d7d3fa17ada32bb1b3d5ed539ae74cf22923", 28},  // deepseek-r1-v2: DeepSeek-R1
    {"56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f", 29},  // deepseek-r1-distill: DeepSeek-R1-...
    {"795ba6276beff6e84e75213f77a7e7fff71b6c587618a6ed43c1f90c2ad2334a", 29},  // deepseek-r1-distill: DeepSeek-R1-...
    {"dd2675619a64a449cdcdd2b93e605a0a50764cee41e344f244752bc93643936c", 29},  // deepseek-r1-distill: DeepSeek-R1-...
    {"31b50c917746ef1c2611c2fef122d3ebee690aca5748ab37832734f9ad375da1", 30},  // ministral-3-14b-reasoning-2512: M...
    {"bbc58aad99454df60138be9530c9601a0adfe3d8932cda975e1f10b2410ddc51", 31},  // mistral-7b-instruct-v0.2: Mistral...
    {"af6311f48482378c1163ba7183c0cefa317fadaa6e0172a167c68d6e238368a8", 32},  // mistral-7b-instruct-v0.3: Mistral...
    {"cafb64e0e9e5fd2503054b3479593fae39cbdfd52338ce8af9bb4664a8eb05bd", 33},  // mistral-large-instruct-2407: Mist...
    {"3c4ad5fa60dd8c7ccdf82fa4225864c903e107728fcaf859fa6052cb80c92ee9", 34},  // mistral-large-instruct-2411: Mist...
    {"d990bccdaaa20611e261434bf60bce767b03d8ee1f1d9b5cd0742b1cc96066b9", 35},  // mistral-small-3.2-24b-instruct-25...
    {"2cf494886f582fc88eb0c1f587c1a43baff83103e9d77f37542d3b8c7586f803", 36},  // orca-vicuna: Orca-Vicuna
    {"5601fd7b9dac735cd1a9d029f73cbcf63a48f84b640df193dadc6ac6af980391", 37},  // phi-3: Phi-3
    {"dcaee66df77bfbb789ec541fe713218da30225a526f1db97138fc39ee6dc56aa", 37},  // phi-3: Phi-3
    {"605841622bcb6572225608f09ec2afcdfb9fb50844ef52715a12689f7b9278b1", 38},  // phi-3-medium-4k-instruct: Phi-3-m...
    {"6b2fedcaff5489ce48d01fbbd17c7a46d4bf78001a5d05ec91d6067bf102e56f", 38},  // phi-3-medium-4k-instruct: Phi-3-m...
    {"febf589225c9728ab791f52e8897d7607a823d45368f0a4c92fa68997b40cce9", 39},  // phi-4-mini-instruct: Phi-4-mini-i...
    {"94c6035b4f0eb905c95e2b7d8dace8547abca03f7fe3e441ba8a6388b1941272", 40},  // qwq-32b: QwQ-32B
    {"7a2fad4301dcce93b13747dfd6ee5fa696dc12de86b85b86344bea8f649022b3", 41},  // qwen1.5-0.5b-chat: Qwen1.5-72B-Chat
    {"7c0cc400db493cfc546224cbd626ef46495c4b19103042eb5518f06bf7f1e26d", 41},  // qwen1.5-0.5b-chat: Qwen1.5-0.5B-Chat
    {"9161685725c9f49b4f36d8f446bcdb801a68ba70f91764dffccafcddcb69cfe9", 41},  // qwen1.5-0.5b-chat: Qwen1.5-72B-Chat
    {"af9c0233881b083b52ff773580215222b5440ac3d0beeeca99b76329b048f8db", 41},  // qwen1.5-0.5b-chat: Qwen1.5-0.5B-Chat
    {"aef0d8fdd367267b22ec7fa9d8b5ebe1b89f1c6cb98d571f5e75ac7e07948937", 42},  // solar-10.7b-instruct-v1.0: SOLAR-...
    {"b8e5e922a7a4ab5df61a904ef54639a27022fd84eb6b6434f09503afeca60eb4", 42},  // solar-10.7b-instruct-v1.0: SOLAR-...
    {"8bbf4e8f9c73ee27d975aa4a3e60d5311ff1aaa1fee7ea2ac25fc6f7a3983390", 43},  // smaug-34b-v0.1: Smaug-34B-v0.1
    {"3982464ecf49b0b38514fec4a5c22273fe70b7259480735bf13e225e4b64bec2", 44},  // smollm3-v2: SmolLM3
    {"3e0e275a527f249670056e0078e474eadbdd007c134b4fdfae5a7b3089702814", 44},  // smollm3-v2: SmolLM3
    {"e7a0ab198804eb445f35a2ac5e23e7d58390ab75f32b197a64aefa6a16f29305", 45},  // synatra-mixtral-8x7b: Synatra-Mix...
    {"ac7498a36a719da630e99d48e6ebc4409de85a77556c2b6159eeb735bcbd11df", 46},  // tulu-3: Tulu-3
    {"d8bf178393df62d7be294ce102976a4b415a9312270007fcd9abd8776048afe2", 46},  // tulu-3: Tulu-3
    {"01658a71df742ed33e28c787ab916834da7cb3d932e25d8f7e916a6f3b9694d4", 47},  // yandexgpt-5-lite-8b-instruct: Yan...
    {"91aa728ae59c8e30443382f44f48d594b5f7afe91a449c0e5ed0e920a71d60a2", 48},  // yi-1.5-9b-chat: Yi-1.5-9B-Chat
    {"d46a86f116c926da86c9232a071e325115772dcf7a55e6881c09c6b43e864dc7", 48},  // yi-1.5-9b-chat: Yi-1.5-9B-Chat
    {"bedb3e0358acf1f722ef759c6417670b4104da9d7fb07f59a386a1bb90d10174", 49},  // deepseek-coder-33b-instruct-awq: ...
    {"993c0af704bad76aeba4263a5318f7873a06420a8eb7d40b72a49c39599c0a66", 50},  // deepseek-coder-33b-instruct: deep...
    {"5b0c475e85b3954175a606f8e7540ec0c6a16edb516e2b8cd0c000dff7b1ad65", 51},  // deepseek-llm-7b-chat: deepseek-ll...
    {"8aeba567270fa9a8d5372caf4b04affea947c4421d96adc01e3ff94021b0ae8e", 51},  // deepseek-llm-7b-chat: deepseek-ll...
    {"2fc9dbfaea552f864b4b8cdf9d17401e9a49cbda199498531f137eb0ec5ae1d8", 52},  // functionary-medium-v3.1: function...
    {"09d68eeb5c0eaa551adea6cc088a05c7298966f395f203126e76b74f5a77a8ff", 53},  // granite-3.0-8b-instruct: granite-...
    {"030682a71799f58861b11abced478506e9d2b84bb0edd2cc3a3b669c32fb9132", 54},  // h2o-danube-1.8b-chat: h2o-danube-...
    {"901b10d47195fadb5692137ecd4b2733730be9d32fde6c6eae23e5153712525e", 55},  // openchat-3.5-0106: openchat-3.5-0106
    {"f298c5c34dedb637a2a665ac409ad764cf3ffb5b2fd89d0e2fa0118a3dc21f1f", 56},  // vicuna-13b-1.1: vicuna-13b-1.1
};
// clang-format on

#endif  // CHAT_TEMPLATES_H
