# frugrad_report: recorded runs become tables, charts and a page. It sees the public header and io/ only.

file(GLOB report_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/report/*.c)
add_library(frugrad_report STATIC ${report_sources})
target_include_directories(frugrad_report PUBLIC ${PROJECT_SOURCE_DIR} PRIVATE ${PROJECT_SOURCE_DIR}/report)
target_link_libraries(frugrad_report PUBLIC frugrad_io m)
